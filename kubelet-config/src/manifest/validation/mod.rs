//! Whether a pod can be, by the API's rules (`ValidatePodCreate` of `pkg/apis/core/validation`).
//!
//! What concerns only a scheduler (affinity, topology spread) or Windows is not looked at.

use k8s_openapi::api::core::v1::Pod;

mod container;
mod env;
mod handler;
mod metadata;
mod problems;
mod resources;
mod security;
mod spec;
mod volume;

use crate::names;
use problems::{Field, Problems};

/// All that is wrong with the pod, one line each, with the field and the value.
pub(super) fn validate(pod: &Pod) -> Vec<String> {
    let mut problems = Problems::default();
    metadata::validate(&pod.metadata, &Field::root("metadata"), &mut problems);
    if let Some(spec) = &pod.spec {
        spec::validate(spec, &Field::root("spec"), &mut problems);
    }
    problems.into_lines()
}
