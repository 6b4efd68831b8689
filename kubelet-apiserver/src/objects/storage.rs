//! Storage classes, CSI drivers, what CSI drivers are on a node, and attachments of volumes.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

pub(super) fn set_class_defaults(class: &mut Value) {
    class.default_text("reclaimPolicy", "Delete");
    class.default_text("volumeBindingMode", "Immediate");
}

pub(super) fn set_driver_defaults(driver: &mut Value) {
    let spec = &mut driver["spec"];
    spec.default_value("attachRequired", true);
    for key in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        spec.default_value(key, false);
    }
    spec.default_text("fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.list("volumeLifecycleModes").is_empty() {
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
    }
}

pub(super) fn validate_class(class: &Value, problems: &mut Problems) {
    metadata::validate(class, false, names::dns_subdomain, problems);
    match class.text("provisioner") {
        "" => problems.required(&Field::root("provisioner"), ""),
        name => problems.unless_formed(
            &Field::root("provisioner"),
            &name.to_lowercase(),
            names::qualified_name,
        ),
    }
    problems.unless_one_of(
        &Field::root("reclaimPolicy"),
        class.text("reclaimPolicy"),
        &["Delete", "Retain"],
    );
    problems.unless_one_of(
        &Field::root("volumeBindingMode"),
        class.text("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
}

pub(super) fn validate_class_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_class(new, problems);
    for key in ["parameters", "provisioner", "reclaimPolicy"] {
        if old[key] != new[key] {
            problems.forbidden(&Field::root(key), &format!("updates to {key} are forbidden."));
        }
    }
    let key = "volumeBindingMode";
    problems.unless_same(&Field::root(key), &new[key], &old[key]);
}

pub(super) fn validate_driver(driver: &Value, problems: &mut Problems) {
    metadata::validate(driver, false, names::dns_subdomain, problems);
    let (spec, field) = (&driver["spec"], Field::root("spec"));
    problems.unless_one_of(
        &field.child("fsGroupPolicy"),
        spec.text("fsGroupPolicy"),
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    for mode in spec.list("volumeLifecycleModes") {
        let mode = mode.as_str().unwrap_or_default();
        problems.unless_one_of(
            &field.child("volumeLifecycleModes"),
            mode,
            &["Ephemeral", "Persistent"],
        );
    }
    let mut audiences = HashSet::new();
    for (index, request) in spec.list("tokenRequests").iter().enumerate() {
        let field = field.child("tokenRequests").index(index);
        if !audiences.insert(request.text("audience")) {
            problems.duplicate(&field.child("audience"), request["audience"].clone());
        }
        if let Some(seconds) = request
            .number("expirationSeconds")
            .filter(|seconds| *seconds < 600)
        {
            let why = "may not specify a duration less than 10 minutes";
            problems.invalid(&field.child("expirationSeconds"), seconds, why);
        }
    }
}

pub(super) fn validate_node(node: &Value, problems: &mut Problems) {
    metadata::validate(node, false, names::dns_subdomain, problems);
    let field = Field::root("spec").child("drivers");
    let mut drivers = HashSet::new();
    for (index, driver) in node["spec"].list("drivers").iter().enumerate() {
        let field = field.index(index);
        match driver.text("name") {
            "" => problems.required(&field.child("name"), ""),
            name if !drivers.insert(name) => problems.duplicate(&field.child("name"), name),
            name => problems.unless_formed(&field.child("name"), &name.to_lowercase(), names::dns_subdomain),
        }
        match driver.text("nodeID") {
            "" => problems.required(&field.child("nodeID"), ""),
            id if id.len() > 256 => {
                problems.invalid(&field.child("nodeID"), id, "must be 256 characters or less");
            }
            _ => {}
        }
        if let Some(count) = driver["allocatable"].number("count") {
            problems.if_negative(&field.child("allocatable").child("count"), count);
        }
    }
}

pub(super) fn validate_attachment(attachment: &Value, problems: &mut Problems) {
    metadata::validate(attachment, false, names::dns_subdomain, problems);
    let (spec, field) = (&attachment["spec"], Field::root("spec"));
    for key in ["attacher", "nodeName"] {
        if spec.text(key).is_empty() {
            problems.required(&field.child(key), "");
        }
    }
    let source = &spec["source"];
    match (source.has("persistentVolumeName"), source.has("inlineVolumeSpec")) {
        (false, false) => problems.required(
            &field.child("source"),
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        (true, true) => problems.forbidden(
            &field.child("source"),
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        _ => {}
    }
}

pub(super) fn validate_attachment_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_attachment(new, problems);
    problems.unless_same(&Field::root("spec"), &new["spec"], &old["spec"]);
}
