//! Validation of pods (`ValidatePodCreate` of `pkg/apis/core/validation`).
//!
//! It skips the fields that only matter to a scheduler (affinity, topology spread), Windows, resource claims and the
//! volume sources of cloud providers.

mod container;
mod env;
mod handler;
mod resources;
mod security;
mod spec;
mod volume;

use serde_json::Value;

use super::super::problems::{Field, Problems};
use super::super::value::Fields;
use super::super::{metadata, names};

pub(in super::super) use resources::validate_overhead;
pub(in super::super) use spec::validate_tolerations;

/// The warnings for a new pod.
pub(super) fn validate_create(pod: &Value, problems: &mut Problems) {
    validate(pod, problems);
    let (spec, field) = (&pod["spec"], Field::root("spec"));
    if !spec.list("ephemeralContainers").is_empty() {
        problems.forbidden(&field.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        problems.forbidden(&field.child("nodeName"), why);
    }
}

/// `validatePodMetadataAndSpec`: the rules for new and changed pods.
pub(super) fn validate(pod: &Value, problems: &mut Problems) {
    metadata::validate(pod, true, names::dns_subdomain, problems);
    validate_annotations(pod, problems);
    let (spec, field) = (&pod["spec"], Field::root("spec"));
    spec::validate(spec, &field, problems);
    if spec.text("serviceAccountName").is_empty() {
        volume::refuse_tokens(spec, &field, problems);
    }
    for key in ["containers", "initContainers"] {
        for (index, container) in spec.list(key).iter().enumerate() {
            container::validate_image_of_pod(container, &field.child(key).index(index), problems);
        }
    }
}

/// `ValidatePodSpecificAnnotations`.
pub(super) fn validate_annotations(pod: &Value, problems: &mut Problems) {
    const MIRROR: &str = "kubernetes.io/config.mirror";
    const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let (annotations, field) = (
        &pod["metadata"]["annotations"],
        Field::root("metadata").child("annotations"),
    );
    if annotations.has(MIRROR) && pod["spec"].text("nodeName").is_empty() {
        let why = "must set spec.nodeName if mirror pod annotation is set";
        problems.invalid(&field.key(MIRROR), annotations.text(MIRROR), why);
    }
    if annotations.has(DELETION_COST) && !is_deletion_cost(annotations.text(DELETION_COST)) {
        let cost = annotations.text(DELETION_COST);
        problems.invalid(&field.key(DELETION_COST), cost, "must be a 32bit integer");
    }
}

fn is_deletion_cost(text: &str) -> bool {
    let canonical = text == "0" || !text.trim_start_matches('-').starts_with('0') && !text.starts_with('+');
    text.parse::<i32>().is_ok() && canonical
}
