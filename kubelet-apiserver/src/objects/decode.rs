//! Decodes a body: JSON, kind and version, types, unknown fields, defaults.

use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::super::request::Attributes;
use super::super::resource::RESOURCES;
use super::super::schema;
use super::super::status_error::StatusError;
use super::value::Fields;
use super::{
    claim, config, json_syntax, namespace, node, persistent_volume, pod, runtime_class, service, storage,
    token_request,
};

/// `fieldValidation`: how to treat unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Drops them.
    Ignore,
    /// Drops them with a `Warning` header; the default.
    #[default]
    Warn,
    /// Rejects the request.
    Strict,
}

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decoded {
    /// Normalised and defaulted.
    pub(crate) object: Value,
    /// The texts of the `Warning` headers.
    pub(crate) warnings: Vec<String>,
}

/// The kind that a path takes.
struct Wanted {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    /// The package of the API server's own type.
    package: &'static str,
}

/// Decodes the JSON body of a `POST` or `PUT`: the object, or what the sub-resource takes (`TokenRequest`,
/// `Binding`…).
///
/// # Errors
///
/// 400 for invalid JSON, another kind or wrong types; with `Strict` also for unknown fields.
pub(crate) fn decode(
    attributes: &Attributes,
    body: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let wanted = wanted(attributes);
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = ReadValue {
        path: String::new(),
        duplicates: &mut duplicates,
    };
    let parsed = read.deserialize(&mut reader).and_then(|value| {
        reader.end()?;
        Ok(value)
    });
    let unrecognized = |why: &str| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why} \
             ({})",
            wanted.kind,
            summary(body)
        ))
    };
    let mut object = match parsed {
        Ok(object @ Value::Object(_)) => object,
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
                _ => "object",
            };
            let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                          \"json:\\\"kind,omitempty\\\"\" }";
            let why = format!("json: cannot unmarshal {kind} into Go value of type {target}");
            return Err(unrecognized(&why));
        }
        Err(error) => {
            let why = json_syntax::complaint(body).unwrap_or_else(|| error.to_string());
            return Err(unrecognized(&why));
        }
    };
    let (version, kind) = check_kind(&wanted, &mut object)?;
    let refuse = |why: &str| {
        StatusError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            wanted.kind
        ))
    };
    let is_object = wanted.kind == attributes.resource.kind;
    if is_object {
        schema::check_types(attributes.resource, &object).map_err(|why| refuse(&why))?;
    }
    let mut found: Vec<String> = duplicates
        .iter()
        .map(|path| format!("duplicate field {path:?}"))
        .collect();
    if is_object {
        found.extend(unknown(attributes, &object));
    }
    if validation == FieldValidation::Strict && !found.is_empty() {
        return Err(refuse(&format!("strict decoding error: {}", found.join(", "))));
    }
    if validation == FieldValidation::Ignore {
        found.clear();
    }
    if is_object {
        schema::normalize(attributes.resource, &mut object);
    }
    set_defaults(wanted.kind, &mut object);
    Ok(Decoded {
        object,
        warnings: found,
    })
}

/// Decodes the result of a patch.
///
/// # Errors
///
/// 422 for wrong types; with `Strict` also for unknown fields.
pub(crate) fn decode_patched(
    attributes: &Attributes,
    mut object: Value,
    validation: FieldValidation,
) -> Result<Decoded, StatusError> {
    let resource = attributes.resource;
    let invalid = |object: &Value, why: &str| {
        let message = format!("Invalid value: {}: {why}", json!(object.to_string()));
        let cause = json!({"reason": "FieldValueInvalid", "message": message, "field": "patch"});
        StatusError::new(422, "Invalid", format!(" \"\" is invalid: patch: {message}"))
            .with_details(json!({"causes": [cause]}))
    };
    schema::check_types(resource, &object).map_err(|why| invalid(&object, &why))?;
    let warnings = match validation {
        FieldValidation::Ignore => Vec::new(),
        _ => unknown(attributes, &object),
    };
    if validation == FieldValidation::Strict && !warnings.is_empty() {
        let why = format!("strict decoding error: {}", warnings.join(", "));
        return Err(invalid(&object, &why));
    }
    schema::normalize(resource, &mut object);
    set_defaults(resource.kind, &mut object);
    Ok(Decoded { object, warnings })
}

/// Decodes an applied configuration. It is neither normalised nor defaulted, since its manager owns exactly its
/// fields.
///
/// # Errors
///
/// 400 for another kind; with `Strict` also for unknown fields.
pub(crate) fn check_applied(
    attributes: &Attributes,
    applied: &Value,
    validation: FieldValidation,
) -> Result<Vec<String>, StatusError> {
    let resource = attributes.resource;
    schema::check_types(resource, applied).map_err(StatusError::bad_request)?;
    let found = match validation {
        FieldValidation::Ignore => Vec::new(),
        _ => unknown(attributes, applied),
    };
    if validation == FieldValidation::Strict && !found.is_empty() {
        return Err(StatusError::bad_request(format!(
            "error decoding YAML: strict decoding error: {}",
            found.join(", ")
        )));
    }
    Ok(found)
}

fn unknown(attributes: &Attributes, object: &Value) -> Vec<String> {
    schema::unknown_fields(attributes.resource, object)
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect()
}

fn wanted(attributes: &Attributes) -> Wanted {
    let (group, version, kind, package) = match attributes.subresource {
        "token" => ("authentication.k8s.io", "v1", "TokenRequest", "authentication"),
        "binding" => ("", "v1", "Binding", "core"),
        "eviction" => ("policy", "v1", "Eviction", "policy"),
        _ => {
            let package = match attributes.resource.group {
                "coordination.k8s.io" => "coordination",
                "node.k8s.io" => "node",
                "certificates.k8s.io" => "certificates",
                "authentication.k8s.io" => "authentication",
                "authorization.k8s.io" => "authorization",
                "storage.k8s.io" => "storage",
                _ => "core",
            };
            let resource = attributes.resource;
            (resource.group, resource.version, resource.kind, package)
        }
    };
    Wanted {
        group,
        version,
        kind,
        package,
    }
}

/// Checks kind and version, and returns version and kind. Missing ones default to the wanted ones.
fn check_kind(wanted: &Wanted, object: &mut Value) -> Result<(String, String), StatusError> {
    let api_version = match wanted.group {
        "" => wanted.version.to_owned(),
        group => format!("{group}/{}", wanted.version),
    };
    object.default_text("apiVersion", &api_version);
    object.default_text("kind", wanted.kind);
    let (given, kind) = (
        object.text("apiVersion").to_owned(),
        object.text("kind").to_owned(),
    );
    let (group, version) = given.split_once('/').unwrap_or(("", &given));
    if given == api_version && kind == wanted.kind {
        return Ok((version.to_owned(), kind));
    }
    let known = (group == wanted.group || RESOURCES.iter().any(|r| r.group == group))
        && RESOURCES
            .iter()
            .any(|r| r.group == group && r.kind == kind && r.version == version);
    let why = if known {
        format!(
            "converting (v1.{kind}) to ({}.{}): unknown conversion",
            wanted.package, wanted.kind
        )
    } else {
        format!(
            "no kind {kind:?} is registered for version {given:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        )
    };
    Err(StatusError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {why}",
        wanted.kind
    )))
}

fn set_defaults(kind: &str, object: &mut Value) {
    match kind {
        "Pod" => pod::set_defaults(object),
        "Node" => node::set_defaults(object),
        "Secret" => config::set_secret_defaults(object),
        "Namespace" => namespace::set_defaults(object),
        "Service" => service::set_defaults(object),
        "RuntimeClass" => runtime_class::set_defaults(object),
        "TokenRequest" => token_request::set_defaults(object),
        "PersistentVolume" => persistent_volume::set_defaults(object),
        "PersistentVolumeClaim" => persistent_volume::set_claim_defaults(object),
        "StorageClass" => storage::set_class_defaults(object),
        "CSIDriver" => storage::set_driver_defaults(object),
        "ResourceClaim" => claim::set_defaults(&mut object["spec"]),
        "ResourceClaimTemplate" => claim::set_defaults(&mut object["spec"]["spec"]),
        _ => {}
    }
}

/// The start of a body; in hexadecimal digits unless it looks like JSON.
fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let head = &body[..body.len().min(MOST)];
    let text = match body.first() {
        None => return "<empty>".into(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > MOST {
        format!("{text} ...")
    } else {
        text
    }
}

/// Reads a value and notes duplicate fields; the last one counts.
struct ReadValue<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for ReadValue<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ReadValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(ReadValue {
            path: format!("{}[{}]", self.path, list.len()),
            duplicates: self.duplicates,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() {
                key.clone()
            } else {
                format!("{}.{key}", self.path)
            };
            if fields.contains_key(&key) {
                self.duplicates.push(path.clone());
            }
            let value = entries.next_value_seed(ReadValue {
                path,
                duplicates: self.duplicates,
            })?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}
