//! Runtime classes.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::problems::{Field, Problems};
use super::quantity;
use super::value::Fields;
use super::{metadata, names, pod};

/// Amounts in canonical form.
pub(super) fn set_defaults(class: &mut Value) {
    let amounts = class
        .pointer_mut("/overhead/podFixed")
        .and_then(Value::as_object_mut);
    for (_, amount) in amounts.into_iter().flatten() {
        if let Some(quantity) = quantity::of(amount) {
            *amount = json!(quantity.round_up_to_milli().to_string());
        }
    }
}

pub(super) fn validate(class: &Value, problems: &mut Problems) {
    metadata::validate(class, false, names::dns_subdomain, problems);
    let field = Field::root("handler");
    match class.text("handler") {
        "" => problems.required(&field, ""),
        handler => problems.unless_formed(&field, handler, names::dns_label),
    }
    if let Some(amounts) = class.pointer("/overhead/podFixed") {
        pod::validate_overhead(amounts, &Field::root("overhead"), problems);
    }
    let (scheduling, field) = (&class["scheduling"], Field::root("scheduling"));
    metadata::validate_labels(
        &scheduling["nodeSelector"],
        &field.child("nodeSelector"),
        problems,
    );
    let field = field.child("tolerations");
    pod::validate_tolerations(scheduling, &field, problems);
    let mut seen = HashSet::new();
    for (index, toleration) in scheduling.list("tolerations").iter().enumerate() {
        let mut key = toleration.clone();
        key.fields_mut().remove("tolerationSeconds");
        if !seen.insert(key.to_string()) {
            problems.duplicate(&field.index(index), toleration.clone());
        }
    }
}

pub(super) fn validate_update(old: &Value, new: &Value, problems: &mut Problems) {
    validate(new, problems);
    metadata::validate_update(new, old, problems);
    problems.unless_same(&Field::root("handler"), &new["handler"], &old["handler"]);
}
