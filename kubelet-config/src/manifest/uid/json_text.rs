//! JSON as it was written: the kubelet keeps the text of a quantity, and that of managed fields.

use serde_json::Value;

/// A number of so many characters may be more than a word holds.
const LONG: usize = 18;

/// Reads valid JSON. A number that loses its form when it is parsed becomes a string with its text, and so does all
/// that is in a field `fieldsV1`.
pub(in crate::manifest) fn read(text: &str) -> serde_json::Result<Value> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut key = "";
    while let Some(first) = rest.chars().next() {
        let is_value = !matches!(first, ':' | ',' | '}' | ']') && !first.is_ascii_whitespace();
        let length = if is_value && key == "\"fieldsV1\"" && out.trim_ascii_end().ends_with(':') {
            value_length(rest)
        } else {
            token_length(rest)
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        let number = first == '-' || first.is_ascii_digit();
        let loses_form = token.len() >= LONG || token.contains(['.', 'e', 'E']);
        if length > token_length(token) || number && loses_form {
            out.push_str(&Value::from(token).to_string());
        } else {
            out.push_str(token);
        }
        if first == '"' {
            key = token;
        }
    }
    serde_json::from_str(&out)
}

/// The length of the value that the text begins with.
fn value_length(text: &str) -> usize {
    let (mut length, mut depth) = (0, 0_usize);
    while length < text.len() {
        let token = &text[length..];
        depth = match token.as_bytes()[0] {
            b'{' | b'[' => depth + 1,
            b'}' | b']' => depth.saturating_sub(1),
            _ => depth,
        };
        length += token_length(token);
        if depth == 0 {
            break;
        }
    }
    length
}

/// The length of the token that the text begins with: a string, a number or word, or one character.
fn token_length(text: &str) -> usize {
    let mut escaped = true;
    match text.chars().next() {
        None => 0,
        Some('"') => {
            let end = text.find(|c: char| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.map_or(text.len(), |end| end + 1)
        }
        Some(c) if c == '-' || c.is_ascii_alphanumeric() => text
            .find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
            .unwrap_or(text.len()),
        Some(c) => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_would_lose_its_form_is_kept_as_text() {
        for (text, expected) in [
            (
                "[1, 1.50, -2e3, 12345678901234567890]",
                json!([1, "1.50", "-2e3", "12345678901234567890"]),
            ),
            (
                r#"["1.5", "\"1.5", "\\", 1.5]"#,
                json!(["1.5", "\"1.5", "\\", "1.5"]),
            ),
            (
                r#"{"fieldsV1" : {"a": [1.5, "}"]}, "b": 1}"#,
                json!({"fieldsV1": r#"{"a": [1.5, "}"]}"#, "b": 1}),
            ),
            (
                r#"{"fieldsV1": {} , "a": "fieldsV1", "b": {"c": 0.10}}"#,
                json!({"fieldsV1": "{}", "a": "fieldsV1", "b": {"c": "0.10"}}),
            ),
            (
                r#"{"fieldsV1":null,"ä":[true,false]}"#,
                json!({"fieldsV1": null, "ä": [true, false]}),
            ),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }
}
