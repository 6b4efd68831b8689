//! Persistent volumes, CSI, resource claims, trust bundles and certificates of pods.

use serde_json::{Value, json};

use super::super::objects::Fields;
use super::{Column, NONE, or};

const UNSET: &str = "<unset>";

pub(super) fn columns(kind: &str) -> Option<&'static [Column]> {
    const NAME: Column = ("Name", "string", false);
    const AGE: Column = ("Age", "string", false);
    const MODE: Column = ("VolumeMode", "string", true);
    Some(match kind {
        "PersistentVolume" => &[
            NAME,
            ("Capacity", "string", false),
            ("Access Modes", "string", false),
            ("Reclaim Policy", "string", false),
            ("Status", "string", false),
            ("Claim", "string", false),
            ("StorageClass", "string", false),
            ("VolumeAttributesClass", "string", false),
            ("Reason", "string", false),
            AGE,
            MODE,
        ],
        "PersistentVolumeClaim" => &[
            NAME,
            ("Status", "string", false),
            ("Volume", "string", false),
            ("Capacity", "string", false),
            ("Access Modes", "string", false),
            ("StorageClass", "string", false),
            ("VolumeAttributesClass", "string", false),
            AGE,
            MODE,
        ],
        "StorageClass" => &[
            NAME,
            ("Provisioner", "string", false),
            ("ReclaimPolicy", "string", false),
            ("VolumeBindingMode", "string", false),
            ("AllowVolumeExpansion", "string", false),
            AGE,
        ],
        "CSIDriver" => &[
            NAME,
            ("AttachRequired", "boolean", false),
            ("PodInfoOnMount", "boolean", false),
            ("StorageCapacity", "boolean", false),
            ("TokenRequests", "string", false),
            ("RequiresRepublish", "boolean", false),
            ("Modes", "string", false),
            AGE,
        ],
        "CSINode" => &[NAME, ("Drivers", "integer", false), AGE],
        "VolumeAttachment" => &[
            NAME,
            ("Attacher", "string", false),
            ("PV", "string", false),
            ("Node", "string", false),
            ("Attached", "boolean", false),
            AGE,
        ],
        "ResourceClaim" => &[NAME, ("State", "string", false), AGE],
        "ResourceSlice" => &[
            NAME,
            ("Node", "string", false),
            ("Driver", "string", false),
            ("Pool", "string", false),
            AGE,
        ],
        "ClusterTrustBundle" => &[NAME, ("SignerName", "string", false)],
        "PodCertificateRequest" => &[
            NAME,
            ("PodName", "string", false),
            ("ServiceAccountName", "string", false),
            ("NodeName", "string", false),
            ("SignerName", "string", false),
            ("State", "string", false),
            ("UnverifiedUserAnnotations", "string", true),
        ],
        _ => return None,
    })
}

pub(super) fn cells(kind: &str, object: &Value, age: &str) -> Option<Value> {
    let (name, spec, status) = (
        object["metadata"].text("name"),
        &object["spec"],
        &object["status"],
    );
    let phase = match object["metadata"].has("deletionTimestamp") {
        true => "Terminating",
        false => status.text("phase"),
    };
    let attributes_class = or(spec.text("volumeAttributesClassName"), UNSET);
    let mode = or(spec.text("volumeMode"), UNSET);
    Some(match kind {
        "PersistentVolume" => {
            let claim = &spec["claimRef"];
            let claim = match claim.is_object() {
                true => format!("{}/{}", claim.text("namespace"), claim.text("name")),
                false => String::new(),
            };
            json!([
                name,
                or(spec["capacity"].text("storage"), "0"),
                access_modes(spec),
                spec.text("persistentVolumeReclaimPolicy"),
                phase,
                claim,
                spec.text("storageClassName"),
                attributes_class,
                status.text("reason"),
                age,
                mode,
            ])
        }
        "PersistentVolumeClaim" => {
            let (capacity, modes) = match spec.text("volumeName") {
                "" => ("", String::new()),
                _ => (or(status["capacity"].text("storage"), "0"), access_modes(status)),
            };
            let (volume, class) = (spec.text("volumeName"), spec.text("storageClassName"));
            json!([
                name,
                phase,
                volume,
                capacity,
                modes,
                class,
                attributes_class,
                age,
                mode
            ])
        }
        "StorageClass" => {
            let is_default = object["metadata"]["annotations"]
                .text("storageclass.kubernetes.io/is-default-class")
                == "true";
            json!([
                format!("{name}{}", if is_default { " (default)" } else { "" }),
                object.text("provisioner"),
                or(object.text("reclaimPolicy"), "Delete"),
                or(object.text("volumeBindingMode"), "Immediate"),
                object.flag("allowVolumeExpansion"),
                age,
            ])
        }
        "CSIDriver" => {
            let words = |list: Vec<&str>| list.join(",");
            let audiences = spec
                .list("tokenRequests")
                .iter()
                .map(|request| request.text("audience"));
            let audiences = match spec.has("tokenRequests") {
                true => words(audiences.collect()),
                false => UNSET.to_owned(),
            };
            let modes = spec.list("volumeLifecycleModes").iter().filter_map(Value::as_str);
            json!([
                name,
                spec.field("attachRequired").is_none_or(|it| *it == true),
                spec.flag("podInfoOnMount"),
                spec.flag("storageCapacity"),
                audiences,
                spec.flag("requiresRepublish"),
                or(&words(modes.collect()), NONE),
                age,
            ])
        }
        "CSINode" => json!([name, spec.list("drivers").len(), age]),
        "VolumeAttachment" => json!([
            name,
            spec.text("attacher"),
            spec["source"].text("persistentVolumeName"),
            spec.text("nodeName"),
            status.flag("attached"),
            age,
        ]),
        "ResourceClaim" => json!([name, claim_state(object), age]),
        "ResourceSlice" => json!([
            name,
            spec.text("nodeName"),
            spec.text("driver"),
            spec["pool"].text("name"),
            age,
        ]),
        "ClusterTrustBundle" => json!([name, or(spec.text("signerName"), NONE)]),
        "PodCertificateRequest" => {
            let outcome = status
                .list("conditions")
                .last()
                .map_or("Pending", |it| it.text("type"));
            let annotations = spec.entries("unverifiedUserAnnotations");
            let annotations: Vec<String> = annotations
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            json!([
                name,
                spec.text("podName"),
                spec.text("serviceAccountName"),
                spec.text("nodeName"),
                spec.text("signerName"),
                outcome,
                or(&annotations.join(","), NONE),
            ])
        }
        _ => return None,
    })
}

/// `GetAccessModesAsString`, e.g. `RWO,ROX`.
fn access_modes(of: &Value) -> String {
    let modes = of.list("accessModes");
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short = short
        .into_iter()
        .filter(|(mode, _)| modes.iter().any(|has| has == mode));
    let short: Vec<&str> = short.map(|(_, short)| short).collect();
    short.join(",")
}

/// (`resourceClaimState`)
fn claim_state(claim: &Value) -> String {
    let is_deleted = claim["metadata"].has("deletionTimestamp");
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    if claim["status"].has("allocation") {
        states.push("allocated");
        if !claim["status"].list("reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !is_deleted {
        states.push("pending");
    }
    states.join(",")
}
