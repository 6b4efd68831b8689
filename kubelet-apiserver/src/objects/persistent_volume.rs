//! Persistent volumes and claims.

use serde_json::{Value, json};

use super::super::request::{Attributes, View};
use super::super::resource::Resource;
use super::problems::{Field, Problems};
use super::quantity;
use super::value::Fields;
use super::{metadata, names};

/// The access modes, sorted as the API server sorts them.
const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
/// The class that claims get that name none.
const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The field of the class, before there was one.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The fields of a persistent volume's spec that are not its source.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(super) fn set_defaults(volume: &mut Value) {
    let spec = &mut volume["spec"];
    spec.default_text("persistentVolumeReclaimPolicy", "Retain");
    spec.default_text("volumeMode", "Filesystem");
    if spec["hostPath"].is_object() {
        spec["hostPath"].default_value("type", "");
    }
    volume["status"].default_text("phase", "Pending");
}

pub(super) fn set_claim_defaults(claim: &mut Value) {
    claim["spec"].default_text("volumeMode", "Filesystem");
    claim["status"].default_text("phase", "Pending");
}

/// `DefaultStorageClass`: a claim that names no class gets the newest class that is marked as default.
pub(super) fn set_default_class(claim: &mut Value, view: &dyn View) {
    if claim["spec"].has("storageClassName") || claim["metadata"]["annotations"].has(CLASS_ANNOTATION) {
        return;
    }
    let Some(classes) = Resource::find("storage.k8s.io", "v1", "storageclasses") else {
        return;
    };
    let classes = view.list(classes, "");
    let defaults = classes
        .iter()
        .filter(|class| class["metadata"]["annotations"].text(IS_DEFAULT_CLASS) == "true");
    let newest = defaults.max_by_key(|class| class["metadata"].text("creationTimestamp").to_owned());
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = json!(class["metadata"].text("name"));
    }
}

pub(super) fn prepare_create(attributes: &Attributes, volume: &mut Value) {
    volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": metadata::time(attributes.now)});
}

pub(super) fn validate(volume: &Value, problems: &mut Problems) {
    metadata::validate(volume, false, names::dns_subdomain, problems);
    let (spec, field) = (&volume["spec"], Field::root("spec"));
    validate_access_modes(spec, &field, problems);
    match spec["capacity"].field("storage").and_then(quantity::of) {
        None => problems.required(&field.child("capacity"), ""),
        Some(size) if !size.amount.is_positive() => problems.invalid(
            &field.child("capacity").key("storage"),
            spec["capacity"]["storage"].clone(),
            "must be greater than zero",
        ),
        Some(_) => {}
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !policy.is_empty() {
        problems.unless_one_of(
            &field.child("persistentVolumeReclaimPolicy"),
            policy,
            &RECLAIM_POLICIES,
        );
    }
    validate_mode(spec, &field, problems);
    let sources = sources(spec);
    match sources.as_slice() {
        [] => problems.required(&field, "must specify a volume type"),
        [_] => {}
        [_, more @ ..] => {
            for source in more {
                problems.forbidden(&field.child(source), "may not specify more than 1 volume type");
            }
        }
    }
    if let Some(csi) = spec.field("csi") {
        for key in ["driver", "volumeHandle"] {
            if csi.text(key).is_empty() {
                problems.required(&field.child("csi").child(key), "");
            }
        }
    }
    if let Some(local) = spec.field("local") {
        if local.text("path").is_empty() {
            problems.required(&field.child("local").child("path"), "");
        }
        if !spec["nodeAffinity"].has("required") {
            problems.required(
                &field.child("nodeAffinity"),
                "Local volume requires node affinity",
            );
        }
    }
}

pub(super) fn validate_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate(new, problems);
    let source = |volume: &Value| -> Vec<Value> {
        let spec = &volume["spec"];
        let named = sources(spec).into_iter().map(|key| json!([key, spec[key]]));
        named.collect()
    };
    if source(old) != source(new) {
        let why = "spec.persistentvolumesource is immutable after creation";
        problems.forbidden(&Field::root("spec").child("persistentvolumesource"), why);
    }
    let field = Field::root("volumeMode");
    problems.unless_same(&field, &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
}

fn sources(spec: &Value) -> Vec<&str> {
    let fields = spec.as_object().into_iter().flatten();
    let set = fields.filter(|(key, value)| !value.is_null() && !NOT_SOURCES.contains(&key.as_str()));
    set.map(|(key, _)| key.as_str()).collect()
}

pub(super) fn validate_claim(claim: &Value, problems: &mut Problems) {
    metadata::validate(claim, true, names::dns_subdomain, problems);
    let (spec, field) = (&claim["spec"], Field::root("spec"));
    validate_access_modes(spec, &field, problems);
    let requested = field.child("resources");
    match spec["resources"]["requests"]
        .field("storage")
        .and_then(quantity::of)
    {
        None => problems.required(&requested.key("storage"), ""),
        Some(size) if !size.amount.is_positive() => problems.invalid(
            &requested.child("requests").key("storage"),
            spec["resources"]["requests"]["storage"].clone(),
            "must be greater than zero",
        ),
        Some(_) => {}
    }
    validate_mode(spec, &field, problems);
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        problems.unless_formed(&field.child("storageClassName"), class, names::dns_subdomain);
    }
}

pub(super) fn validate_claim_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    validate_claim(new, problems);
    let (before, mut after) = (&old["spec"], new["spec"].clone());
    // The binder sets the volume once.
    if before.text("volumeName").is_empty() {
        metadata::copy_field(before, &mut after, "volumeName");
    }
    let is_bound = old["status"].text("phase") == "Bound";
    if is_bound {
        for key in ["resources", "volumeAttributesClassName"] {
            metadata::copy_field(before, &mut after, key);
        }
    }
    let field = Field::root("spec");
    if after != *before {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims";
        problems.forbidden(&field, why);
    }
    let size = |value: &Value| quantity::of(&value["storage"]).map(|size| size.amount);
    let has = size(&old["status"]["capacity"]);
    let (wanted, wants) = (
        size(&before["resources"]["requests"]),
        size(&new["spec"]["resources"]["requests"]),
    );
    if is_bound && wants < wanted && wants <= has {
        let why = "field can not be less than status.capacity";
        problems.forbidden(&field.child("resources").child("requests").child("storage"), why);
    }
}

fn validate_access_modes(spec: &Value, field: &Field, problems: &mut Problems) {
    let (modes, field) = (spec.list("accessModes"), field.child("accessModes"));
    if modes.is_empty() {
        problems.required(&field, "at least 1 access mode is required");
    }
    for mode in modes {
        problems.unless_one_of(&field, mode.as_str().unwrap_or_default(), &ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        problems.forbidden(&field, why);
    }
}

fn validate_mode(spec: &Value, field: &Field, problems: &mut Problems) {
    let mode = spec.text("volumeMode");
    if !mode.is_empty() {
        problems.unless_one_of(&field.child("volumeMode"), mode, &VOLUME_MODES);
    }
}
