//! Environment variables and where their values come from.

use k8s_openapi::api::core::v1::{
    Container, EnvVar, FileKeySelector, ObjectFieldSelector, ResourceFieldSelector,
};

use super::container::Volumes;
use super::{Field, Problems, names};

const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
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

pub(super) fn validate(container: &Container, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    for (index, env) in container.env.iter().flatten().enumerate() {
        let field = field.child("env").index(index);
        if env.name.is_empty() {
            problems.required(&field.child("name"), "");
        } else {
            problems.unless_formed(&field.child("name"), &env.name, names::env_var_name);
        }
        validate_source(env, volumes, &field.child("valueFrom"), problems);
    }
    for (index, from) in container.env_from.iter().flatten().enumerate() {
        let at = field.child("envFrom").index(index);
        if let Some(prefix) = &from.prefix {
            problems.unless_formed(&at.child("prefix"), prefix, names::env_var_name);
        }
        if from.config_map_ref.is_some() == from.secret_ref.is_some() {
            let why = "must specify one of: `configMapRef` or `secretRef`";
            problems.invalid(&field.child("envFrom"), "", why);
        }
    }
}

fn validate_source(env: &EnvVar, volumes: &Volumes<'_>, field: &Field, problems: &mut Problems) {
    let Some(from) = &env.value_from else { return };
    if let Some(selector) = &from.field_ref {
        validate_field(selector, &FIELDS, &field.child("fieldRef"), problems);
    }
    if let Some(selector) = &from.resource_field_ref {
        validate_resource(selector, false, &field.child("resourceFieldRef"), problems);
    }
    if let Some(selector) = &from.file_key_ref {
        validate_file_key(selector, volumes, &field.child("fileKeyRef"), problems);
    }
    let sources = [
        from.field_ref.is_some(),
        from.resource_field_ref.is_some(),
        from.config_map_key_ref.is_some(),
        from.secret_key_ref.is_some(),
        from.file_key_ref.is_some(),
    ];
    match sources.into_iter().filter(|set| *set).count() {
        0 => {
            let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            problems.invalid(field, "", why);
        }
        _ if env.value.as_ref().is_some_and(|value| !value.is_empty()) => {
            problems.invalid(field, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => problems.invalid(field, "", "may not have more than one field specified at a time"),
    }
}

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

fn validate_file_key(
    selector: &FileKeySelector,
    volumes: &Volumes<'_>,
    field: &Field,
    problems: &mut Problems,
) {
    if selector.key.is_empty() {
        problems.required(&field.child("key"), "");
    } else {
        problems.unless_formed(&field.child("key"), &selector.key, names::env_var_name);
    }
    if selector.path.is_empty() {
        problems.required(&field.child("path"), "");
    } else {
        problems.unless_formed(&field.child("path"), &selector.path, names::no_backsteps);
    }
    let (field, name) = (field.child("volumeName"), selector.volume_name.as_str());
    match volumes.get(name) {
        _ if name.is_empty() => problems.required(&field, ""),
        None => problems.not_found(&field, name),
        Some(volume) if volume.empty_dir.is_none() => {
            problems.invalid(&field, name, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}
