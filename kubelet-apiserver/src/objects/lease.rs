//! Leases.

use serde_json::Value;

use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

pub(super) fn prepare(lease: &mut Value) {
    for key in ["strategy", "preferredHolder"] {
        metadata::remove(lease, "/spec", key);
    }
}

pub(super) fn validate(lease: &Value, problems: &mut Problems) {
    metadata::validate(lease, true, names::dns_subdomain, problems);
    validate_spec(lease, problems);
}

pub(super) fn validate_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_spec(new, problems);
}

fn validate_spec(lease: &Value, problems: &mut Problems) {
    let (spec, field) = (&lease["spec"], Field::root("spec"));
    if let Some(seconds) = spec
        .number("leaseDurationSeconds")
        .filter(|seconds| *seconds <= 0)
    {
        let field = field.child("leaseDurationSeconds");
        problems.invalid(&field, seconds, "must be greater than 0");
    }
    let transitions = spec.number("leaseTransitions").unwrap_or(0);
    problems.if_negative(&field.child("leaseTransitions"), transitions);
}
