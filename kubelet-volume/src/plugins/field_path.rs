//! A field of the pod as text (`pkg/fieldpath`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::Pod;

/// The field: a label, an annotation, all of them, the name, the namespace or the UID (`ExtractFieldPathAsString`).
pub(super) fn field(pod: &Pod, path: &str) -> Result<String, String> {
    let metadata = &pod.metadata;
    if let Some((map, key)) = subscripted(path) {
        let map = match map {
            "metadata.annotations" => &metadata.annotations,
            "metadata.labels" => &metadata.labels,
            _ => return Err(format!("fieldPath {path:?} does not support subscript")),
        };
        let value = map.as_ref().and_then(|map| map.get(key));
        return Ok(value.cloned().unwrap_or_default());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    match path {
        "metadata.annotations" => Ok(lines(metadata.annotations.as_ref())),
        "metadata.labels" => Ok(lines(metadata.labels.as_ref())),
        "metadata.name" => Ok(text(&metadata.name)),
        "metadata.namespace" => Ok(text(&metadata.namespace)),
        "metadata.uid" => Ok(text(&metadata.uid)),
        _ => Err(format!("unsupported fieldPath: {path}")),
    }
}

/// Splits `metadata.labels['key']` into field and key (`SplitMaybeSubscriptedPath`).
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// `key="value"`, one a line (`FormatMap`).
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A string as Go writes it in source code (`strconv.Quote`).
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            letter if is_printable(letter) => quoted.push(letter),
            letter => {
                let code = u32::from(letter);
                _ = match code {
                    0..=0x7f => write!(quoted, "\\x{code:02x}"),
                    0x80..=0xffff => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Letters, marks, numbers, punctuation, symbols and the space (`strconv.IsPrint`). After a letter, the standard library
/// escapes only what is none of these.
fn is_printable(letter: char) -> bool {
    let text = format!("a{letter}");
    letter == '\'' || text.escape_debug().eq(text.chars())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_text() {
        let pod = json!({"metadata": {"name": "n", "namespace": "s", "uid": "u",
            "labels": {"b": "two", "a": "one"}, "annotations": {"a[b]c": "x", "note": "line1\nline2 \"q\""}}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        for (path, expected) in [
            ("metadata.name", Ok("n")),
            ("metadata.namespace", Ok("s")),
            ("metadata.uid", Ok("u")),
            ("metadata.labels", Ok("a=\"one\"\nb=\"two\"")),
            (
                "metadata.annotations",
                Ok("a[b]c=\"x\"\nnote=\"line1\\nline2 \\\"q\\\"\""),
            ),
            ("metadata.labels['a']", Ok("one")),
            ("metadata.labels['none']", Ok("")),
            ("metadata.annotations['a[b]c']", Ok("x")),
            ("metadata.annotations['note']", Ok("line1\nline2 \"q\"")),
            ("spec.nodeName", Err("unsupported fieldPath: spec.nodeName")),
            (
                "metadata.name['x']",
                Err("fieldPath \"metadata.name['x']\" does not support subscript"),
            ),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(field(&pod, path), expected, "{path}");
        }
    }

    #[test]
    fn letters_that_cannot_be_printed_are_escaped() {
        for (text, expected) in [
            ("a'b\\c", r#""a'b\\c""#),
            ("\u{0}\u{7}\t\u{7f}", r#""\x00\a\t\x7f""#),
            ("é e\u{301} 日 🙂", "\"é e\u{301} 日 🙂\""),
            ("\u{a0}\u{200b}\u{feff}", r#""\u00a0\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
