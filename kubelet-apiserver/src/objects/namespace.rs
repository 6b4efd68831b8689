//! Namespaces.

use serde_json::{Value, json};

use super::super::request::Attributes;
use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

/// What every namespace is labelled with.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn set_defaults(namespace: &mut Value) {
    let name = namespace["metadata"].text("name").to_owned();
    if !name.is_empty() {
        namespace["metadata"]["labels"][NAME_LABEL] = json!(name);
    }
    if namespace["status"].is_null() {
        namespace["status"] = json!({});
    }
    namespace["status"].default_text("phase", "Active");
}

pub(super) fn prepare_create(namespace: &mut Value) {
    namespace["status"] = json!({"phase": "Active"});
    let mut finalizers = namespace["spec"].list("finalizers").to_vec();
    if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    namespace["spec"]["finalizers"] = Value::Array(finalizers);
    // For names that were generated.
    set_defaults(namespace);
}

pub(super) fn prepare_update(attributes: &Attributes, old: &Value, new: &mut Value) {
    metadata::copy_field(old, new, "spec");
    if attributes.subresource.is_empty() {
        metadata::copy_field(old, new, "status");
    }
}

pub(super) fn validate(namespace: &Value, problems: &mut Problems) {
    metadata::validate(namespace, false, names::dns_label, problems);
    let field = Field::root("spec").child("finalizers");
    for finalizer in namespace["spec"].list("finalizers") {
        let finalizer = finalizer.as_str().unwrap_or_default();
        problems.unless_formed(&field, finalizer, names::qualified_name);
    }
}

pub(super) fn validate_update(attributes: &Attributes, old: &Value, new: &Value, problems: &mut Problems) {
    if attributes.subresource.is_empty() {
        validate(new, problems);
    }
    metadata::validate_update(new, old, problems);
    if attributes.subresource == "status" {
        let phase = new["status"].text("phase");
        let (wanted, why) = if new["metadata"]["deletionTimestamp"].is_null() {
            ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
        } else {
            (
                "Terminating",
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            )
        };
        if phase != wanted {
            problems.invalid(&Field::root("status").child("Phase"), phase, why);
        }
    }
}
