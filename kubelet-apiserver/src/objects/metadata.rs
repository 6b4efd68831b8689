//! `ObjectMeta`: system fields, generated names, validation.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::request::Attributes;
use super::super::status_error::StatusError;
use super::names;
use super::problems::{Field, Problems};
use super::value::Fields;

/// The letters of random suffixes: no vowels, and no letters that look alike.
const ALPHANUMS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// A generated name is at most 63 bytes long, five of which are the suffix (`maxGeneratedNameLength`).
const MAX_GENERATED_NAME_LENGTH: usize = 58;
/// The maximum size of all annotations together, in bytes (`TotalAnnotationSizeLimitB`).
const TOTAL_ANNOTATION_SIZE_LIMIT: usize = 256 << 10;

/// The rule for the names of a kind.
pub(super) type NameForm = fn(&str) -> Vec<String>;

/// `EnsureObjectNamespaceMatchesRequestNamespace`.
pub(super) fn agree_on_namespace(attributes: &Attributes, object: &mut Value) -> Result<(), StatusError> {
    let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if !attributes.resource.namespaced {
        remove(object, "/metadata", "namespace");
    } else if given.is_empty() {
        object["metadata"]["namespace"] = json!(attributes.namespace);
    } else if given != attributes.namespace {
        return Err(StatusError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Names a new object and sets the server's fields.
pub(super) fn fill(attributes: &Attributes, rng: &mut fastrand::Rng, object: &mut Value) {
    let Value::Object(meta) = &mut object["metadata"] else {
        return;
    };
    for wiped in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "resourceVersion",
    ] {
        meta.remove(wiped);
    }
    let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("name").is_empty() && !text("generateName").is_empty() {
        let base = text("generateName");
        let end = (0..=MAX_GENERATED_NAME_LENGTH.min(base.len()))
            .rev()
            .find(|end| base.is_char_boundary(*end));
        let name = format!("{}{}", &base[..end.unwrap_or(0)], suffix(rng));
        meta.insert("name".into(), json!(name));
    }
    meta.insert("uid".into(), json!(uid(rng)));
    meta.insert("creationTimestamp".into(), json!(time(attributes.now)));
}

/// Copies from the stored object what no update may change (`rest.BeforeUpdate`).
pub(super) fn keep(old: &Value, new: &mut Value) {
    let (old, Value::Object(new)) = (&old["metadata"], &mut new["metadata"]) else {
        return;
    };
    if new.get("uid").is_none_or(|uid| uid == "") {
        copy(old, new, "uid");
    }
    copy(old, new, "creationTimestamp");
    if !old["deletionTimestamp"].is_null() {
        copy(old, new, "deletionTimestamp");
    }
    if !new.contains_key("deletionGracePeriodSeconds") {
        copy(old, new, "deletionGracePeriodSeconds");
    }
}

/// Copies a field of another object, or removes it.
pub(super) fn copy(from: &Value, to: &mut Map<String, Value>, key: &str) {
    match from.get(key) {
        Some(value) => to.insert(key.into(), value.clone()),
        None => to.remove(key),
    };
}

/// As [`copy`], for a whole sub-object.
pub(super) fn copy_field(from: &Value, to: &mut Value, key: &str) {
    if let Value::Object(to) = to {
        copy(from, to, key);
    }
}

/// Removes a field below a path, if both exist.
pub(super) fn remove(object: &mut Value, path: &str, key: &str) {
    if let Some(Value::Object(at)) = object.pointer_mut(path) {
        at.remove(key);
    }
}

/// `ValidateObjectMetaAccessor`.
pub(super) fn validate(object: &Value, namespaced: bool, form: NameForm, problems: &mut Problems) {
    let (meta, field) = (&object["metadata"], Field::root("metadata"));
    let text = |key: &str| meta[key].as_str().unwrap_or_default();
    let prefix = text("generateName");
    if !prefix.is_empty() {
        // The name is a prefix, so it may end with a dash.
        let stem = match prefix.strip_suffix('-') {
            Some(stem) if !stem.is_empty() => stem,
            _ => prefix,
        };
        for why in form(stem) {
            problems.invalid(&field.child("generateName"), prefix, &why);
        }
    }
    if text("name").is_empty() {
        problems.required(&field.child("name"), "name or generateName is required");
    } else {
        problems.unless_formed(&field.child("name"), text("name"), form);
    }
    if namespaced {
        if text("namespace").is_empty() {
            problems.required(&field.child("namespace"), "");
        } else {
            problems.unless_formed(&field.child("namespace"), text("namespace"), names::dns_label);
        }
    }
    problems.if_negative(
        &field.child("generation"),
        meta["generation"].as_i64().unwrap_or_default(),
    );
    validate_labels(&meta["labels"], &field.child("labels"), problems);
    validate_annotations(&meta["annotations"], &field.child("annotations"), problems);
    validate_owners(meta, &field.child("ownerReferences"), problems);
    validate_finalizers(meta, &field.child("finalizers"), problems);
}

/// `ValidateObjectMetaAccessorUpdate`.
pub(super) fn validate_update(new: &Value, old: &Value, problems: &mut Problems) {
    let (new, old, field) = (&new["metadata"], &old["metadata"], Field::root("metadata"));
    if !old["deletionTimestamp"].is_null() {
        let finalizers = |meta: &Value| meta["finalizers"].as_array().cloned().unwrap_or_default();
        let known = finalizers(old);
        let mut extra: Vec<String> = finalizers(new)
            .iter()
            .filter(|finalizer| !known.contains(finalizer))
            .map(Value::to_string)
            .collect();
        if !extra.is_empty() {
            extra.sort();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                extra.join(", ")
            );
            problems.forbidden(&field.child("finalizers"), &why);
        }
    }
    let generation = |meta: &Value| meta["generation"].as_i64().unwrap_or_default();
    if generation(new) < generation(old) {
        problems.invalid(
            &field.child("generation"),
            generation(new),
            "must not be decremented",
        );
    }
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        problems.unless_same(&field.child(key), &new[key], &old[key]);
    }
    validate_labels(&new["labels"], &field.child("labels"), problems);
    validate_annotations(&new["annotations"], &field.child("annotations"), problems);
    validate_owners(new, &field.child("ownerReferences"), problems);
}

/// `ValidateLabels`.
pub(super) fn validate_labels(labels: &Value, field: &Field, problems: &mut Problems) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        problems.unless_formed(field, key, names::qualified_name);
        problems.unless_formed(field, value.as_str().unwrap_or_default(), names::label_value);
    }
}

/// `ValidateAnnotations`.
pub(super) fn validate_annotations(annotations: &Value, field: &Field, problems: &mut Problems) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        for why in names::qualified_name(&key.to_lowercase()) {
            problems.invalid(field, key.as_str(), &why);
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > TOTAL_ANNOTATION_SIZE_LIMIT {
        problems.too_long(field, TOTAL_ANNOTATION_SIZE_LIMIT);
    }
}

fn validate_owners(meta: &Value, field: &Field, problems: &mut Problems) {
    let mut controller: Option<String> = None;
    for owner in meta["ownerReferences"].as_array().into_iter().flatten() {
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        for (key, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(key).is_empty() {
                problems.invalid(&field.child(key), "", why);
            }
        }
        if owner["controller"] == true {
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let why = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {this}"
                    );
                    problems.invalid(field, meta["ownerReferences"].clone(), &why);
                }
                None => controller = Some(this),
            }
        }
    }
}

fn validate_finalizers(meta: &Value, field: &Field, problems: &mut Problems) {
    let mut seen = Vec::new();
    for finalizer in meta["finalizers"].as_array().into_iter().flatten() {
        let name = finalizer.as_str().unwrap_or_default();
        problems.unless_formed(field, name, names::qualified_name);
        seen.push(name);
    }
    if seen.contains(&"orphan") && seen.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        problems.invalid(field, meta["finalizers"].clone(), why);
    }
}

/// A time as the API writes it: whole seconds, UTC.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Five random letters and digits, as behind `generateName`.
pub(crate) fn suffix(rng: &mut fastrand::Rng) -> String {
    (0..5)
        .map(|_| char::from(ALPHANUMS[rng.usize(..ALPHANUMS.len())]))
        .collect()
}

/// A random (version 4) UUID.
pub(crate) fn uid(rng: &mut fastrand::Rng) -> String {
    let n = (rng.u128(..) & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{n:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The name of an object in admission's messages. A new object may not have one yet.
pub(crate) fn display_name(attributes: &Attributes, object: &Value) -> String {
    let meta = &object["metadata"];
    [&attributes.name, meta.text("name"), meta.text("generateName")]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("Unknown")
        .to_owned()
}
