//! Volumes, and those whose content the kubelet makes.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, HostPathVolumeSource, PodSpec, ProjectedVolumeSource, Volume,
};
use serde_json::Value;

use super::{Field, Problems, names, selector, volume_source};
use crate::manifest::canonical::amount;

const FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const FILE_MODES: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The volumes that containers may mount, by name.
pub(super) type Volumes<'a> = HashMap<&'a str, &'a Volume>;

/// Validates the volumes; those in order can be mounted.
pub(super) fn validate<'a>(volumes: &'a [Volume], field: &Field, problems: &mut Problems) -> Volumes<'a> {
    let mut good = Volumes::new();
    for (index, volume) in volumes.iter().enumerate() {
        let field = field.index(index);
        let mut found = Problems::default();
        if volume.name.is_empty() {
            found.required(&field.child("name"), "");
        } else {
            found.unless_formed(&field.child("name"), &volume.name, names::dns_label);
        }
        if good.contains_key(volume.name.as_str()) {
            found.duplicate(&field.child("name"), &volume.name);
        }
        validate_source(volume, &field, &mut found);
        if found.is_empty() {
            good.insert(&volume.name, volume);
        }
        problems.append(found);
    }
    good
}

/// A token is a service account's, so there must be one.
pub(super) fn validate_tokens(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    if spec.service_account_name.is_some() {
        return;
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = field
            .child("volumes")
            .index(index)
            .child("projected")
            .child("sources");
        let sources = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        for (index, source) in sources.enumerate() {
            if source.service_account_token.is_some() {
                let why = "must not be specified when serviceAccountName is not set";
                problems.forbidden(&field.index(index).child("serviceAccountToken"), why);
            }
        }
    }
}

fn validate_source(volume: &Volume, field: &Field, problems: &mut Problems) {
    // All fields but the name are sources.
    if let Ok(Value::Object(sources)) = serde_json::to_value(volume) {
        for (source, _) in sources.iter().filter(|(source, _)| *source != "name").skip(1) {
            problems.forbidden(&field.child(source), "may not specify more than 1 volume type");
        }
    }
    if let Some(empty_dir) = &volume.empty_dir {
        let limit = empty_dir.size_limit.as_ref().and_then(|limit| amount(&limit.0));
        if limit.is_some_and(|limit| limit.amount.is_negative()) {
            let field = field.child("emptyDir").child("sizeLimit");
            problems.forbidden(&field, "SizeLimit field must be a valid resource quantity");
        }
    }
    if let Some(host_path) = &volume.host_path {
        validate_host_path(host_path, &field.child("hostPath"), problems);
    }
    if let Some(downward) = &volume.downward_api {
        let field = field.child("downwardAPI");
        validate_mode(downward.default_mode, &field.child("defaultMode"), problems);
        for file in downward.items.iter().flatten() {
            validate_downward_file(file, &field, problems);
        }
    }
    if let Some(projected) = &volume.projected {
        validate_projected(projected, &field.child("projected"), problems);
    }
    if let Some(image) = &volume.image {
        let policy = image.pull_policy.as_deref().unwrap_or_default();
        let field = field.child("image").child("pullPolicy");
        problems.unless_one_of(&field, policy, &["Always", "IfNotPresent", "Never"]);
    }
    volume_source::validate(volume, field, problems);
}

fn validate_host_path(host_path: &HostPathVolumeSource, field: &Field, problems: &mut Problems) {
    if host_path.path.is_empty() {
        problems.required(&field.child("path"), "");
        return;
    }
    problems.unless_formed(&field.child("path"), &host_path.path, names::no_backsteps);
    let kind = host_path.type_.as_deref().unwrap_or_default();
    problems.unless_one_of(&field.child("type"), kind, &HOST_PATH_TYPES);
}

fn validate_projected(projected: &ProjectedVolumeSource, field: &Field, problems: &mut Problems) {
    validate_mode(projected.default_mode, &field.child("defaultMode"), problems);
    let mut paths = HashSet::new();
    for (index, source) in projected.sources.iter().flatten().enumerate() {
        let at = field.child("sources").index(index);
        if let Some(downward) = &source.downward_api {
            for file in downward.items.iter().flatten() {
                validate_downward_file(file, &at.child("downwardAPI"), problems);
                if !file.path.is_empty() && !paths.insert(file.path.as_str()) {
                    problems.invalid(field, &file.path, "conflicting duplicate paths");
                }
            }
        }
        if let Ok(Value::Object(kinds)) = serde_json::to_value(source)
            && kinds.len() > 1
        {
            problems.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

fn validate_downward_file(file: &DownwardAPIVolumeFile, field: &Field, problems: &mut Problems) {
    if file.path.is_empty() {
        problems.required(&field.child("path"), "");
    }
    problems.unless_formed(&field.child("path"), &file.path, names::local_non_reserved_path);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(of_field), None) => {
            selector::validate_field(of_field, &FIELDS, &field.child("fieldRef"), problems)
        }
        (None, Some(of_resource)) => {
            selector::validate_resource(of_resource, true, &field.child("resourceFieldRef"), problems)
        }
        (None, None) => problems.required(field, "one of fieldRef and resourceFieldRef is required"),
        (Some(_), Some(_)) => {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            problems.invalid(field, "resource", why);
        }
    }
    validate_mode(file.mode, &field.child("mode"), problems);
}

fn validate_mode(mode: Option<i32>, field: &Field, problems: &mut Problems) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        problems.invalid(field, mode, FILE_MODES);
    }
}
