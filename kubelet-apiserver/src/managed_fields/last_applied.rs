//! The annotation in which `kubectl apply` without `--server-side` keeps what it applied, and how `kubectl` migrates
//! from it to server-side apply.

use serde_json::Value;

use super::compare::{compare, fields};
use super::field_set::FieldSet;
use super::form::Form;

/// The only manager that the annotation applies to.
pub(super) const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The fields that were applied and have not changed since. An apply may take them without force.
pub(super) fn unchanged(form: &Form, live: &Value) -> Option<FieldSet> {
    let text = live
        .get("metadata")?
        .get("annotations")?
        .get(ANNOTATION)?
        .as_str()?;
    let applied: Value = serde_json::from_str(text).ok()?;
    if applied["apiVersion"] != live["apiVersion"] {
        return None;
    }
    let changes = compare(form, Some(&applied), Some(live));
    let changed = changes.modified.union(&changes.added).union(&changes.removed);
    Some(fields(form, &applied).difference(&changed))
}

/// Updates the annotation, if there is one.
pub(super) fn update(object: &mut Value, applied: &Value) {
    let Some(Value::String(annotation)) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"))
        .and_then(|annotations| annotations.get_mut(ANNOTATION))
    else {
        return;
    };
    if annotation.is_empty() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(Value::Object(annotations)) = applied.pointer_mut("/metadata/annotations") {
        annotations.remove(ANNOTATION);
    }
    *annotation = format!("{applied}\n");
}
