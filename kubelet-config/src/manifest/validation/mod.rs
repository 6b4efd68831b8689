//! The validation of a new pod by the rules of the API (`ValidatePodCreate` of `pkg/apis/core/validation`).

use k8s_openapi::api::core::v1::Pod;

mod annotations;
mod container;
mod env;
mod handler;
mod metadata;
mod os;
mod problems;
mod resources;
mod scheduling;
mod security;
mod selector;
mod spec;
mod toleration;
mod visit;
mod volume;
mod volume_source;

use crate::names;
use problems::{Field, Problems};

/// All problems of the pod, one line each, with the field and the value.
pub(super) fn validate(pod: &Pod) -> Vec<String> {
    let mut problems = Problems::default();
    metadata::validate(&pod.metadata, &Field::root("metadata"), &mut problems);
    let annotations = Field::root("metadata").child("annotations");
    annotations::validate(pod, &annotations, &mut problems);
    if let Some(spec) = &pod.spec {
        let field = Field::root("spec");
        spec::validate(spec, &field, &mut problems);
        annotations::validate_agreement(pod, spec, &field, &mut problems);
    }
    problems.into_lines()
}
