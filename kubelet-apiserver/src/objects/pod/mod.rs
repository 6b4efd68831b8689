//! Pods: which fields of a request count and which are the server's (`pkg/registry/core/pod/strategy.go`).

mod admission;
mod defaults;
mod posted;
mod qos;
mod status;
mod update;
mod validation;

use serde_json::{Value, json};

use super::super::request::Attributes;
use super::metadata;
use super::problems::Problems;
use super::value::Fields;

pub(super) use admission::{admit_create, admit_service_account, admit_update};
pub(super) use defaults::set_defaults;
pub(super) use posted::{bind, evict};
pub(super) use validation::{validate_overhead, validate_tolerations};

/// The annotation of mirror pods.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Clears what a user may not set on creation, and sets the server's fields.
pub(super) fn prepare_create(pod: &mut Value) {
    pod["metadata"]["generation"] = json!(1);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos::of(&pod["spec"])});
    if !pod["spec"].list("schedulingGates").is_empty() {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": null,
        }]);
    }
    merge_label_keys(pod);
}

pub(super) fn validate_create(pod: &Value, problems: &mut Problems) {
    validation::validate_create(pod, problems);
}

/// Copies from `old` what the request may not change.
pub(super) fn prepare_update(attributes: &Attributes, old: &Value, new: &mut Value) {
    match attributes.subresource {
        "status" => status::prepare(old, new),
        "resize" => update::prepare_resize(old, new),
        "ephemeralcontainers" => update::prepare_ephemeral_containers(old, new),
        _ => metadata::copy_field(old, new, "status"),
    }
    if attributes.subresource != "status" && new["spec"] != old["spec"] {
        let generation = old["metadata"].number("generation").unwrap_or(0);
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

pub(super) fn validate_update(attributes: &Attributes, old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    match attributes.subresource {
        "status" => status::validate(old, new, problems),
        "resize" => update::validate_resize(old, new, problems),
        "ephemeralcontainers" => update::validate_ephemeral_containers(old, new, problems),
        _ => update::validate(old, new, problems),
    }
}

/// The deprecated twin fields of pods, as the conversion from the API server's own types writes them.
pub(super) fn complete(pod: &mut Value) {
    match pod["spec"].text("serviceAccountName").to_owned() {
        name if name.is_empty() => metadata::remove(pod, "/spec", "serviceAccount"),
        name => pod["spec"]["serviceAccount"] = json!(name),
    }
    match pod["status"]["podIPs"][0]["ip"].as_str().map(str::to_owned) {
        Some(ip) => pod["status"]["podIP"] = json!(ip),
        None => metadata::remove(pod, "/status", "podIP"),
    }
}

/// `matchLabelKeys` and `mismatchLabelKeys` of affinities become part of their selectors.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"].field("labels").cloned().unwrap_or_default();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = pod["spec"].pointer_mut(&format!("/affinity/{kind}")) else {
            continue;
        };
        for term in affinity.list_mut("preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                merge_label_keys_of(term, &labels);
            }
        }
        for term in affinity.list_mut("requiredDuringSchedulingIgnoredDuringExecution") {
            merge_label_keys_of(term, &labels);
        }
    }
    for constraint in pod["spec"].list_mut("topologySpreadConstraints") {
        merge_label_keys_of(constraint, &labels);
    }
}

fn merge_label_keys_of(term: &mut Value, labels: &Value) {
    if !term.has("labelSelector") {
        return;
    }
    let mut expressions = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.list(keys).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if !expressions.is_empty() {
        let mut all = term["labelSelector"].list("matchExpressions").to_vec();
        all.extend(expressions);
        term["labelSelector"]["matchExpressions"] = Value::Array(all);
    }
}
