//! Checks JSON types against the table, with the messages of Go's decoder.

use base64::{DecodeError, Engine};
use serde_json::Value;

use super::table::{Kind, Type};
use super::{go_time, quantity};

impl Type {
    /// Checks that every field has its JSON type; null fits every type.
    ///
    /// # Errors
    ///
    /// The first field with another type, in the API server's words: `json: cannot unmarshal number into Go struct
    /// field EnvVar.spec.containers.env.value of type string`.
    pub(crate) fn check(&self, object: &Value) -> Result<(), String> {
        let mut place = Place {
            r#struct: "",
            fields: Vec::new(),
        };
        place.check_struct(self, object)
    }
}

/// The position of the decoder.
struct Place {
    /// The type that contains the innermost field.
    r#struct: &'static str,
    fields: Vec<&'static str>,
}

impl Place {
    fn check_struct(&mut self, r#type: &'_ Type, value: &Value) -> Result<(), String> {
        let object = match value {
            Value::Null => return Ok(()),
            Value::Object(object) => object,
            _ => return Err(self.mismatch(value, &go_struct(r#type.name))),
        };
        for (name, value) in object {
            let Some(field) = r#type.field(name) else {
                continue;
            };
            let outer = std::mem::replace(&mut self.r#struct, bare(r#type.name));
            self.fields.push(field.name);
            self.check(&field.kind, value)?;
            self.fields.pop();
            self.r#struct = outer;
        }
        Ok(())
    }

    fn check(&mut self, kind: &Kind, value: &Value) -> Result<(), String> {
        match (kind, value) {
            (_, Value::Null) | (Kind::Raw, _) => Ok(()),
            (Kind::String(_), Value::String(_)) | (Kind::Bool, Value::Bool(_)) => Ok(()),
            (Kind::Int32 | Kind::Int64, Value::Number(n)) => {
                let fits = n
                    .as_i64()
                    .is_some_and(|n| *kind == Kind::Int64 || i32::try_from(n).is_ok());
                if fits {
                    Ok(())
                } else {
                    Err(self.mismatch_of(&format!("number {n}"), &go_type(kind)))
                }
            }
            (Kind::Bytes, Value::String(text)) => base64_ok(text),
            (Kind::Time | Kind::MicroTime | Kind::Quantity | Kind::IntOrString, _) => {
                check_custom(kind, value)
            }
            (Kind::Struct(name), _) => self.check_struct(super::named(name), value),
            (Kind::List(element), Value::Array(list)) => {
                list.iter().try_for_each(|value| self.check(element, value))
            }
            (Kind::Map(element), Value::Object(map)) => {
                map.values().try_for_each(|value| self.check(element, value))
            }
            _ => Err(self.mismatch(value, &go_type(kind))),
        }
    }

    fn mismatch(&self, value: &Value, go_type: &str) -> String {
        self.mismatch_of(json_type(value), go_type)
    }

    fn mismatch_of(&self, value: &str, go_type: &str) -> String {
        if self.fields.is_empty() {
            return mismatch_of_value(value, go_type);
        }
        format!(
            "json: cannot unmarshal {value} into Go struct field {}.{} of type {go_type}",
            self.r#struct,
            self.fields.join(".")
        )
    }
}

/// The types with a decoder of their own, which does not know its position.
pub(super) fn check_custom(kind: &Kind, value: &Value) -> Result<(), String> {
    match (kind, value) {
        (Kind::Time | Kind::MicroTime, Value::String(text)) => {
            go_time::parse(text, *kind == Kind::MicroTime).map(drop)
        }
        (Kind::Time | Kind::MicroTime, _) => Err(mismatch_of_value(json_type(value), "string")),
        (Kind::Quantity, Value::String(text)) => quantity::canonical(text).map(drop),
        (Kind::Quantity, _) => quantity::canonical(&value.to_string()).map(drop),
        (Kind::IntOrString, Value::Number(n)) if n.as_i64().is_none_or(|n| i32::try_from(n).is_err()) => {
            Err(mismatch_of_value(&format!("number {n}"), "int32"))
        }
        (Kind::IntOrString, Value::String(_) | Value::Number(_)) => Ok(()),
        (Kind::IntOrString, _) => Err(mismatch_of_value(json_type(value), "int32")),
        _ => Ok(()),
    }
}

fn mismatch_of_value(value: &str, go_type: &str) -> String {
    format!("json: cannot unmarshal {value} into Go value of type {go_type}")
}

/// Go's name for the type of a JSON value.
pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The table's `events.Event` is an `Event` too.
fn bare(name: &'static str) -> &'static str {
    name.rsplit('.').next().unwrap_or(name)
}

fn go_struct(name: &'static str) -> String {
    format!("v1.{}", bare(name))
}

/// Go's name for a type of the table; those of the API are in a package `v1`.
pub(super) fn go_type(kind: &Kind) -> String {
    match kind {
        Kind::String("string") => "string".into(),
        Kind::String(name) if name.contains('.') => (*name).into(),
        Kind::String(name) => format!("v1.{name}"),
        Kind::Bool => "bool".into(),
        Kind::Int32 => "int32".into(),
        Kind::Int64 => "int64".into(),
        Kind::Bytes => "[]uint8".into(),
        Kind::Time => "v1.Time".into(),
        Kind::MicroTime => "v1.MicroTime".into(),
        Kind::Quantity => "resource.Quantity".into(),
        Kind::IntOrString => "intstr.IntOrString".into(),
        Kind::Raw => "v1.FieldsV1".into(),
        Kind::Struct(name) => go_struct(name),
        Kind::List(element) => format!("[]{}", go_type(element)),
        Kind::Map(element) if **element == Kind::Quantity => "v1.ResourceList".into(),
        Kind::Map(element) => format!("map[string]{}", go_type(element)),
    }
}

pub(super) fn base64_ok(text: &str) -> Result<(), String> {
    let engine = base64::engine::general_purpose::STANDARD;
    match engine.decode(text.replace(['\r', '\n'], "")) {
        Ok(_) => Ok(()),
        Err(DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        // The start of the last four letters, which are not four.
        Err(DecodeError::InvalidLength(_) | DecodeError::InvalidPadding) => Err(format!(
            "illegal base64 data at input byte {}",
            text.len() / 4 * 4
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn wrong_types_in_the_words_of_the_api_server() {
        let unmarshal = "json: cannot unmarshal";
        let cases = [
            ("Pod", json!([]), "array into Go value of type v1.Pod"),
            (
                "Pod",
                json!({"spec": "x"}),
                "string into Go struct field Pod.spec of type v1.PodSpec",
            ),
            (
                "Pod",
                json!({"spec": {"containers": {}}}),
                "object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"env": [{"value": 1}]}]}}),
                "number into Go struct field EnvVar.spec.containers.env.value of type string",
            ),
            (
                "Pod",
                json!({"spec": {"restartPolicy": true}}),
                "bool into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                "Pod",
                json!({"spec": {"priority": 5_000_000_000_i64}}),
                "number 5000000000 into Go struct field PodSpec.spec.priority of type int32",
            ),
            (
                "Pod",
                json!({"metadata": {"labels": {"a": 5}}}),
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                "events.Event",
                json!({"regarding": 1}),
                "number into Go struct field Event.regarding of type v1.ObjectReference",
            ),
        ];
        for (name, object, expected) in cases {
            assert_eq!(
                super::super::named(name).check(&object),
                Err(format!("{unmarshal} {expected}")),
                "{object}"
            );
        }
    }

    #[test]
    fn values_with_a_decoder_of_their_own() {
        let cases = [
            (
                "Lease",
                json!({"spec": {"renewTime": "yesterday"}}),
                "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\"",
            ),
            (
                "Pod",
                json!({"status": {"startTime": 5}}),
                "json: cannot unmarshal number into Go value of type string",
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "two"}}}]}}),
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"livenessProbe": {"tcpSocket": {"port": true}}}]}}),
                "json: cannot unmarshal bool into Go value of type int32",
            ),
            (
                "Secret",
                json!({"data": {"a": "!"}}),
                "illegal base64 data at input byte 0",
            ),
        ];
        for (name, object, expected) in cases {
            assert_eq!(
                super::super::named(name).check(&object),
                Err(expected.to_string()),
                "{object}"
            );
        }
    }

    #[test]
    fn null_and_right_types_pass() {
        let pod = json!({
            "metadata": null,
            "spec": {
                "containers": [{"name": "c", "resources": {"limits": {"cpu": 2, "memory": "1Gi"}},
                    "livenessProbe": {"httpGet": {"port": "http"}}}],
                "terminationGracePeriodSeconds": 5_000_000_000_i64,
            },
            "status": {"startTime": "2026-01-01T00:00:00+02:00", "conditions": [{"lastProbeTime": null}]},
        });
        assert_eq!(super::super::named("Pod").check(&pod), Ok(()));
        let secret = json!({"data": {"a": "YQ=="}, "immutable": true});
        assert_eq!(super::super::named("Secret").check(&secret), Ok(()));
    }
}
