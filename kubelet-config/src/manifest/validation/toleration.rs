//! Tolerations, of a spec or of an annotation.

use k8s_openapi::api::core::v1::Toleration;

use super::{Field, Problems, names};

pub(super) fn validate(toleration: &Toleration, field: &Field, problems: &mut Problems) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, operator) = (text(&toleration.key), text(&toleration.operator));
    let (value, effect) = (text(&toleration.value), text(&toleration.effect));
    if !key.is_empty() {
        problems.unless_formed(&field.child("key"), &key, names::qualified_name);
    } else if operator != "Exists" {
        problems.invalid(
            &field.child("operator"),
            &operator,
            "operator must be Exists when `key` is empty",
        );
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        problems.invalid(&field.child("effect"), &effect, why);
    }
    match operator.as_str() {
        "" | "Equal" => problems.unless_formed(&field.child("operator"), &value, names::label_value),
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            problems.invalid(&field.child("operator"), &value, why);
        }
        other => problems.unless_one_of(&field.child("operator"), other, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        problems.unless_one_of(&field.child("effect"), &effect, &supported);
    }
}
