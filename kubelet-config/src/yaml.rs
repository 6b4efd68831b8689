//! YAML, and JSON as a part of it, read as the kubelet's YAML library reads it.

use serde::de::DeserializeOwned;
use serde::de::value::{Error as UnitError, UnitDeserializer};
use serde_saphyr::options::{DuplicateKeyPolicy, Options};

/// The most nodes that a document has, and gets through aliases. Pods have some hundred.
const MAX_NODES: usize = 50_000;

/// The first document of a text.
pub(crate) struct Document<T> {
    pub(crate) value: T,
    pub(crate) passed_over: Vec<String>,
}

/// What becomes of a key that a map has twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicates {
    LastWins,
    Refused,
}

/// Reads the first document of a text. An error has the place of the problem.
///
/// Hostile input (aliases that multiply, deep nesting) meets a budget.
pub(crate) fn read<T: DeserializeOwned>(text: &[u8], duplicates: Duplicates) -> Result<Document<T>, String> {
    let text = std::str::from_utf8(text).map_err(|error| format!("not UTF-8: {error}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(control) = text.chars().find(|c| is_forbidden(*c)) {
        return Err(format!("control character {control:?} is not allowed"));
    }
    let mut reader = text.as_bytes();
    let mut documents = serde_saphyr::read_with_options::<_, T>(&mut reader, options(duplicates));
    let value = match documents.next() {
        None => T::deserialize(UnitDeserializer::new()).map_err(|error: UnitError| error.to_string())?,
        Some(read) => read.map_err(|error| error.to_string())?,
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

fn options(duplicates: Duplicates) -> Options {
    let duplicate_keys = match duplicates {
        Duplicates::LastWins => DuplicateKeyPolicy::LastWins,
        Duplicates::Refused => DuplicateKeyPolicy::Error,
    };
    serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
        },
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
        },
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(text: &[u8]) -> Result<Document<Value>, String> {
        super::read(text, Duplicates::LastWins)
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        for (text, expected) in [
            ("y", json!(true)),
            ("N", json!(false)),
            ("yes", json!(true)),
            ("off", json!(false)),
            ("'y'", json!("y")),
            ("\"no\"", json!("no")),
            ("!!str 1", json!("1")),
            ("~", json!(null)),
            ("", json!(null)),
            ("0644", json!(420)),
            ("0o644", json!(420)),
            ("0x1F", json!(31)),
            ("0b11", json!(3)),
            ("1_000", json!(1000)),
            ("1.5", json!(1.5)),
            ("12:30", json!("12:30")),
            ("2001-01-01", json!("2001-01-01")),
            ("1Gi", json!("1Gi")),
        ] {
            let document = read(format!("a: {text}").as_bytes()).unwrap();
            assert_eq!(document.value["a"], expected, "{text}");
        }
    }

    #[test]
    fn documents() {
        let cases: [(&str, Value, bool); 8] = [
            ("", json!(null), false),
            ("# nothing", json!(null), false),
            ("a: 1\na: 2", json!({"a": 2}), false),
            ("a: 1\n---\n", json!({"a": 1}), false),
            ("a: 1\n---\nb: 1", json!({"a": 1}), true),
            ("a: 1\n---\n{broken", json!({"a": 1}), true),
            ("<<: {a: 1}\nb: 2", json!({"a": 1, "b": 2}), false),
            ("{\"a\": [1, \"\\u00e4\"]}", json!({"a": [1, "ä"]}), false),
        ];
        for (text, expected, more) in cases {
            let document = read(text.as_bytes()).unwrap();
            assert_eq!(document.value, expected, "{text}");
            assert_eq!(!document.passed_over.is_empty(), more, "{text}");
        }
    }

    #[test]
    fn hostile_text_is_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let below = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{below}]\n");
        }
        for text in [
            bomb,
            "[".repeat(100_000),
            "{a: ".repeat(100_000),
            format!("[{}]", "1,".repeat(60_000)),
            "a: *nothing".into(),
            "a: &a [*a]".into(),
            "\u{0}".into(),
        ] {
            assert!(read(text.as_bytes()).is_err(), "{}", &text[..text.len().min(40)]);
        }
        assert!(read(b"a: \xff").is_err());
    }
}
