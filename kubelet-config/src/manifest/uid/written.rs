//! What only the text of a manifest tells: how a quantity was written.

use serde_json::Value;

use super::quantity::GoQuantity;

/// A result, or the reason why the kubelet's UID is not known.
pub(super) type Known<T> = Result<T, &'static str>;

/// The language of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manifest) enum Syntax {
    /// The kubelet decodes the text as it is.
    Json,
    /// The kubelet turns it into JSON, and decodes that.
    Yaml,
}

/// Whether the value is there and not `null`.
pub(super) fn is_set(value: &Value) -> bool {
    !value.is_null()
}

/// The quantity that was written like this.
pub(super) fn quantity(written: Option<&Value>) -> Known<GoQuantity> {
    let text = match written {
        None | Some(Value::Null) => return Ok(GoQuantity::default()),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Number(number)) => number_text(number),
        Some(_) => return Err("a quantity is neither a string nor a number"),
    };
    GoQuantity::parse(&text).ok_or("a quantity is beyond reason")
}

/// The number, as it is in the JSON that the kubelet makes of YAML.
fn number_text(number: &serde_json::Number) -> String {
    const WITH_EXPONENT: f64 = 1e21;
    const SMALL_WITH_EXPONENT: f64 = 1e-6;
    match number.as_f64().filter(|_| number.is_f64()) {
        None => number.to_string(),
        Some(float) if float.abs() >= WITH_EXPONENT => format!("{float:e}").replace('e', "e+"),
        Some(float) if float != 0.0 && float.abs() < SMALL_WITH_EXPONENT => format!("{float:e}"),
        Some(float) => float.to_string(),
    }
}

/// The managed fields, as the kubelet keeps them.
pub(super) fn managed_fields(written: Option<&Value>, syntax: Syntax) -> String {
    match (written, syntax) {
        (None, _) => String::new(),
        (Some(Value::String(text)), Syntax::Json) => text.clone(),
        (Some(value), _) => json(value),
    }
}

/// The JSON that the kubelet makes of YAML: without spaces, with sorted keys.
fn json(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields = fields.into_iter();
            let fields: Vec<_> = fields
                .map(|(key, value)| format!("{}:{}", json_string(key), json(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(json).collect();
            format!("[{}]", items.join(","))
        }
        Value::String(text) => json_string(text),
        Value::Number(number) => number_text(number),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// Go also escapes what has a meaning in HTML, and two line ends.
fn json_string(text: &str) -> String {
    let mut quoted = Value::from(text).to_string();
    for (character, escape) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        quoted = quoted.replace(character, escape);
    }
    quoted
}
