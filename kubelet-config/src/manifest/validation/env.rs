//! Environment variables and where their values come from.

use k8s_openapi::api::core::v1::{Container, EnvVar, FileKeySelector};

use super::volume::Volumes;
use super::{Field, Problems, names, selector};

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
    if let Some(of_field) = &from.field_ref {
        selector::validate_field(of_field, &FIELDS, &field.child("fieldRef"), problems);
    }
    if let Some(of_resource) = &from.resource_field_ref {
        selector::validate_resource(of_resource, false, &field.child("resourceFieldRef"), problems);
    }
    if let Some(of_file) = &from.file_key_ref {
        validate_file_key(of_file, volumes, &field.child("fileKeyRef"), problems);
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
