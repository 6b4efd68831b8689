//! Checks JSON types against the table, with the messages of the converter that reads the result of a strategic merge
//! patch. The converter is not a decoder: it visits the type's fields in their order, and tolerates other things.

use serde_json::Value;

use super::check::{base64_ok, check_custom, go_type};
use super::table::{Kind, Type};

impl Type {
    /// As [`Type::check`], for the result of a strategic merge patch.
    ///
    /// # Errors
    ///
    /// The first field with another type: `cannot restore slice from string`.
    pub(crate) fn check_converted(&self, object: &Value) -> Result<(), String> {
        let object = match object {
            Value::Null => return Ok(()),
            Value::Object(object) => object,
            other => return Err(format!("cannot restore struct from: {}", go_kind(other))),
        };
        for field in &self.fields {
            if let Some(value) = object.get(field.name) {
                check(&field.kind, value)?;
            }
        }
        Ok(())
    }
}

fn check(kind: &Kind, value: &Value) -> Result<(), String> {
    match (kind, value) {
        (_, Value::Null) | (Kind::Raw, _) => Ok(()),
        (Kind::String(_), Value::String(_)) | (Kind::Bool, Value::Bool(_)) => Ok(()),
        (Kind::Int32 | Kind::Int64, Value::Number(n)) => {
            let whole = !n.is_f64() || n.as_f64().is_some_and(|n| n == n.trunc());
            if whole {
                Ok(())
            } else {
                Err(format!("cannot convert float64 to {}", go_type(kind)))
            }
        }
        // Go can convert an integer to a string, so this mismatch has its own message.
        (Kind::String(_), Value::Number(n)) if !n.is_f64() => {
            Err(format!("cannot convert int64 to {}", go_type(kind)))
        }
        (Kind::String(_), _) => Err("unrecognized type: string".into()),
        (Kind::Bool, _) => Err("unrecognized type: bool".into()),
        (Kind::Int32, _) => Err("unrecognized type: int32".into()),
        (Kind::Int64, _) => Err("unrecognized type: int64".into()),
        (Kind::Time | Kind::MicroTime | Kind::Quantity | Kind::IntOrString, _) => check_custom(kind, value),
        (Kind::Bytes, Value::String(text)) => {
            base64_ok(text).map_err(|why| format!("error decoding from json: {why}"))
        }
        (Kind::Struct(name), _) => super::named(name).check_converted(value),
        (Kind::List(element), Value::Array(list)) => list.iter().try_for_each(|value| check(element, value)),
        (Kind::List(_) | Kind::Bytes, _) => Err(format!("cannot restore slice from {}", go_kind(value))),
        (Kind::Map(element), Value::Object(map)) => map.values().try_for_each(|value| check(element, value)),
        (Kind::Map(_), _) => Err(format!("cannot restore map from {}", go_kind(value))),
    }
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn mismatches_in_the_words_of_the_converter() {
        let cases = [
            (json!({"spec": "x"}), "cannot restore struct from: string"),
            (
                json!({"spec": {"containers": {}}}),
                "cannot restore slice from map",
            ),
            (json!({"spec": {"nodeName": 1}}), "cannot convert int64 to string"),
            (
                json!({"spec": {"restartPolicy": 1}}),
                "cannot convert int64 to v1.RestartPolicy",
            ),
            (
                json!({"spec": {"restartPolicy": true}}),
                "unrecognized type: string",
            ),
            (json!({"spec": {"priority": "x"}}), "unrecognized type: int32"),
            (
                json!({"spec": {"priority": 1.5}}),
                "cannot convert float64 to int32",
            ),
            (
                json!({"metadata": {"labels": []}}),
                "cannot restore map from slice",
            ),
            (
                json!({"status": {"startTime": "now"}}),
                "parsing time \"now\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"now\" as \"2006\"",
            ),
            // In the order of the type, not of the object.
            (
                json!({"spec": {"nodeName": 1, "containers": 1}}),
                "cannot restore slice from int64",
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(
                super::super::named("Pod").check_converted(&pod),
                Err(expected.to_string()),
                "{pod}"
            );
        }
        let fine = json!({"spec": {"priority": 2.0, "containers": null, "bogus": []}});
        assert_eq!(super::super::named("Pod").check_converted(&fine), Ok(()));
    }
}
