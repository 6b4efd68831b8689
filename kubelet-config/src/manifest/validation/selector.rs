//! Selectors of a pod's fields and of a container's resources, for variables and for files.

use k8s_openapi::api::core::v1::{ObjectFieldSelector, ResourceFieldSelector};

use super::{Field, Problems, names};

const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTE_DIVISORS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// The field of a pod that a variable or a file shows.
pub(super) fn validate_field(
    selector: &ObjectFieldSelector,
    fields: &[&str],
    field: &Field,
    problems: &mut Problems,
) {
    if selector
        .api_version
        .as_deref()
        .is_some_and(|version| version != "v1")
    {
        problems.invalid(&field.child("apiVersion"), &selector.api_version, "must be v1");
        return;
    }
    let path = selector.field_path.as_str();
    if path.is_empty() {
        problems.required(&field.child("fieldPath"), "");
        return;
    }
    let subscript = path
        .split_once("['")
        .and_then(|(path, rest)| Some((path, rest.strip_suffix("']")?)));
    match subscript {
        Some(("metadata.annotations", key)) => {
            problems.unless_formed(field, &key.to_lowercase(), names::qualified_name);
        }
        Some(("metadata.labels", key)) => problems.unless_formed(field, key, names::qualified_name),
        Some((path, _)) => problems.invalid(field, path, "does not support subscript"),
        None => problems.unless_one_of(&field.child("fieldPath"), path, fields),
    }
}

/// The resource of a container that a variable or a file shows.
pub(super) fn validate_resource(
    selector: &ResourceFieldSelector,
    named: bool,
    field: &Field,
    problems: &mut Problems,
) {
    let resource = selector.resource.as_str();
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if named && selector.container_name.as_deref().unwrap_or_default().is_empty() {
        problems.required(&field.child("containerName"), "");
    } else if resource.is_empty() {
        problems.required(&field.child("resource"), "");
    } else if !huge {
        problems.unless_one_of(&field.child("resource"), resource, &RESOURCES);
    }
    let divisor = selector
        .divisor
        .as_ref()
        .map_or("0", |divisor| divisor.0.as_str());
    let supported: &[&str] = if resource.ends_with(".cpu") {
        &["1m", "1"]
    } else {
        &BYTE_DIVISORS
    };
    if divisor != "0" {
        problems.unless_one_of(&field.child("divisor"), divisor, supported);
    }
}
