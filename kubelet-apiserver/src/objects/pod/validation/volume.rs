//! Volumes and their sources.

use std::collections::HashSet;

use serde_json::Value;

use super::super::super::names;
use super::super::super::problems::{Field, Problems};
use super::super::super::quantity;
use super::super::super::value::Fields;
use super::container::Volumes;
use super::env;

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
/// The sources, in the order in which the reference checks them.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
const FILE_MODES: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates the volumes and returns the valid ones, which can be mounted.
pub(super) fn validate<'a>(volumes: &'a [Value], field: &Field, problems: &mut Problems) -> Volumes<'a> {
    let mut good = Volumes::new();
    for (index, volume) in volumes.iter().enumerate() {
        let (field, name) = (field.index(index), volume.text("name"));
        let mut found = Problems::default();
        validate_source(volume, &field, &mut found);
        if name.is_empty() {
            found.required(&field.child("name"), "");
        } else {
            found.unless_formed(&field.child("name"), name, names::dns_label);
        }
        if good.contains_key(name) {
            found.duplicate(&field.child("name"), name);
        }
        if found.is_empty() {
            good.insert(name, volume);
        }
        problems.append(found);
    }
    good
}

/// A projected token belongs to a service account, so the pod must have one.
pub(super) fn refuse_tokens(spec: &Value, field: &Field, problems: &mut Problems) {
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        let field = field
            .child("volumes")
            .index(index)
            .child("projected")
            .child("sources");
        for (index, source) in volume["projected"].list("sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let why = "must not be specified when serviceAccountName is not set";
                problems.forbidden(&field.index(index).child("serviceAccountToken"), why);
            }
        }
    }
}

fn validate_source(volume: &Value, field: &Field, problems: &mut Problems) {
    let mut found = false;
    for key in SOURCES {
        let Some(source) = volume.field(key) else { continue };
        let field = field.child(key);
        if found {
            problems.forbidden(&field, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        match key {
            "emptyDir" => validate_empty_dir(source, &field, problems),
            "hostPath" => validate_host_path(source, &field, problems),
            "secret" => validate_files(source, "secretName", &field, problems),
            "configMap" => validate_files(source, "name", &field, problems),
            "persistentVolumeClaim" if source.text("claimName").is_empty() => {
                problems.required(&field.child("claimName"), "");
            }
            "downwardAPI" => {
                validate_mode(source, "defaultMode", &field, problems);
                for file in source.list("items") {
                    validate_downward_file(file, &field, problems);
                }
            }
            "projected" => validate_projected(source, &field, problems),
            "image" => {
                if source.text("reference").is_empty() {
                    problems.required(&field.child("reference"), "");
                }
                let policies = ["Always", "IfNotPresent", "Never"];
                let field = field.child("pullPolicy");
                problems.unless_one_of(&field, source.text("pullPolicy"), &policies);
            }
            "nfs" => validate_nfs(source, &field, problems),
            _ => {}
        }
    }
    if !found {
        problems.required(field, "must specify a volume type");
    }
}

fn validate_empty_dir(source: &Value, field: &Field, problems: &mut Problems) {
    if quantity::of(&source["sizeLimit"]).is_some_and(|limit| limit.amount.is_negative()) {
        let why = "SizeLimit field must be a valid resource quantity";
        problems.forbidden(&field.child("sizeLimit"), why);
    }
}

fn validate_host_path(source: &Value, field: &Field, problems: &mut Problems) {
    if source.text("path").is_empty() {
        problems.required(&field.child("path"), "");
        return;
    }
    problems.unless_formed(&field.child("path"), source.text("path"), names::no_backsteps);
    problems.unless_one_of(&field.child("type"), source.text("type"), &HOST_PATH_TYPES);
}

fn validate_nfs(source: &Value, field: &Field, problems: &mut Problems) {
    let (server, path) = (source.text("server"), source.text("path"));
    if server.is_empty() {
        problems.required(&field.child("server"), "");
    }
    if path.is_empty() {
        problems.required(&field.child("path"), "");
    }
    if !path.starts_with('/') {
        problems.invalid(&field.child("path"), path, "must be an absolute path");
    }
}

/// A volume with keys of a secret or a config map.
fn validate_files(source: &Value, name: &str, field: &Field, problems: &mut Problems) {
    if source.text(name).is_empty() {
        problems.required(&field.child(name), "");
    }
    validate_mode(source, "defaultMode", field, problems);
    for (index, item) in source.list("items").iter().enumerate() {
        validate_key_to_path(item, &field.child("items").index(index), problems);
    }
}

fn validate_key_to_path(item: &Value, field: &Field, problems: &mut Problems) {
    for key in ["key", "path"] {
        if item.text(key).is_empty() {
            problems.required(&field.child(key), "");
        }
    }
    problems.unless_formed(
        &field.child("path"),
        item.text("path"),
        names::local_non_reserved_path,
    );
    validate_mode(item, "mode", field, problems);
}

fn validate_projected(projected: &Value, field: &Field, problems: &mut Problems) {
    validate_mode(projected, "defaultMode", field, problems);
    let mut paths = HashSet::new();
    for (index, source) in projected.list("sources").iter().enumerate() {
        let at = field.child("sources").index(index);
        for key in ["secret", "configMap"] {
            let Some(reference) = source.field(key) else {
                continue;
            };
            let (at, name) = (at.child(key), reference.text("name"));
            if name.is_empty() {
                problems.required(&at.child("name"), "");
            }
            for (index, item) in reference.list("items").iter().enumerate() {
                validate_key_to_path(item, &at.child("items").index(index), problems);
                let path = item.text("path");
                if !path.is_empty() && !paths.insert(path) {
                    problems.invalid(field, name, "conflicting duplicate paths");
                }
            }
        }
        for file in source["downwardAPI"].list("items") {
            validate_downward_file(file, &at.child("downwardAPI"), problems);
            let path = file.text("path");
            if !path.is_empty() && !paths.insert(path) {
                problems.invalid(field, path, "conflicting duplicate paths");
            }
        }
        if let Some(token) = source.field("serviceAccountToken") {
            validate_token(token, &at.child("serviceAccountToken"), field, problems);
        }
        if source.as_object().is_some_and(|sources| sources.len() > 1) {
            problems.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

fn validate_token(token: &Value, field: &Field, volume: &Field, problems: &mut Problems) {
    let (at, seconds) = (
        field.child("expirationSeconds"),
        token.number("expirationSeconds").unwrap_or(0),
    );
    if seconds < 10 * 60 {
        problems.invalid(&at, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > 1 << 32 {
        problems.invalid(
            &at,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    // The reference, too, reports this one at the volume.
    match token.text("path") {
        "" => problems.required(&volume.child("path"), ""),
        path => problems.unless_formed(&volume.child("path"), path, names::local_non_reserved_path),
    }
}

fn validate_downward_file(file: &Value, field: &Field, problems: &mut Problems) {
    if file.text("path").is_empty() {
        problems.required(&field.child("path"), "");
    }
    problems.unless_formed(
        &field.child("path"),
        file.text("path"),
        names::local_non_reserved_path,
    );
    match (file.field("fieldRef"), file.field("resourceFieldRef")) {
        (Some(selector), other) => {
            env::validate_field(selector, &FIELDS, &field.child("fieldRef"), problems);
            if other.is_some() {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                problems.invalid(field, "resource", why);
            }
        }
        (None, Some(selector)) => {
            env::validate_resource(selector, true, &field.child("resourceFieldRef"), problems);
        }
        (None, None) => problems.required(field, "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(file, "mode", field, problems);
}

fn validate_mode(source: &Value, key: &str, field: &Field, problems: &mut Problems) {
    if let Some(mode) = source.number(key).filter(|mode| !(0..=0o777).contains(mode)) {
        problems.invalid(&field.child(key), mode, FILE_MODES);
    }
}
