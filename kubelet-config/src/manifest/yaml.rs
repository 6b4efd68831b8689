//! YAML, and JSON as a part of it, read as the kubelet's YAML library reads it.

use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, Options};

use crate::{Error, Result};

/// The first document of a text.
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) passed_over: Vec<String>,
}

/// Reads the first document of a text.
///
/// Hostile input (aliases that multiply, deep nesting) meets a budget.
pub(super) fn read(text: &[u8]) -> Result<Document> {
    let parse = |message: String| Error::Parse { message };
    let text = std::str::from_utf8(text).map_err(|error| parse(format!("not UTF-8: {error}")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(control) = text.chars().find(|c| is_forbidden(*c)) {
        return Err(parse(format!("control character {control:?} is not allowed")));
    }
    let mut reader = text.as_bytes();
    let mut documents = serde_saphyr::read_with_options::<_, Value>(&mut reader, options());
    let value = match documents.next() {
        None => Value::Null,
        Some(Ok(value)) => value,
        Some(Err(error)) => return Err(parse(error.to_string())),
    };
    let mut passed_over = Vec::new();
    if documents.next().is_some() {
        passed_over.push("the file holds more than one document; only the first is read".into());
    }
    Ok(Document { value, passed_over })
}

/// What no YAML text may hold.
fn is_forbidden(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}
