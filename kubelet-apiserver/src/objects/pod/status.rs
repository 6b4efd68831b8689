//! The status of a pod, which its kubelet writes.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::metadata;
use super::super::names;
use super::super::problems::{Field, Problems};
use super::super::value::Fields;
use super::update;

/// Copies from the stored pod what an update of the status may not change.
pub(super) fn prepare(old: &Value, new: &mut Value) {
    metadata::copy_field(old, new, "spec");
    metadata::remove(new, "/metadata", "deletionTimestamp");
    metadata::copy_field(&old["metadata"], &mut new["metadata"], "ownerReferences");
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    let (old, new) = (&old["status"], &mut new["status"]);
    if new.text("qosClass").is_empty() {
        metadata::copy_field(old, new, "qosClass");
    }
    keep_observed_generations(old, new);
}

/// A client without the field `observedGeneration` does not clear it.
fn keep_observed_generations(old: &Value, new: &mut Value) {
    if new.number("observedGeneration").unwrap_or(0) == 0 {
        metadata::copy_field(old, new, "observedGeneration");
    }
    let mut known: Vec<(&str, Option<i64>)> = old
        .list("conditions")
        .iter()
        .map(|condition| (condition.text("type"), condition.number("observedGeneration")))
        .collect();
    for condition in new.list_mut("conditions") {
        let kind = condition.text("type").to_owned();
        let of_kind = known.iter().position(|(known, _)| *known == kind);
        let generation = of_kind.and_then(|index| known.remove(index).1);
        if condition.number("observedGeneration").unwrap_or(0) == 0
            && let Some(generation) = generation
        {
            condition["observedGeneration"] = json!(generation);
        }
    }
}

/// `ValidatePodStatusUpdate`.
pub(super) fn validate(old: &Value, new: &Value, problems: &mut Problems) {
    update::validate_annotations(old, new, problems);
    let field = Field::root("status");
    let (before, after) = (&old["status"], &new["status"]);
    validate_conditions(after, &field.child("conditions"), problems);
    let nominated = after.text("nominatedNodeName");
    if !nominated.is_empty() && nominated != before.text("nominatedNodeName") {
        let field = field.child("nominatedNodeName");
        problems.unless_formed(&field, nominated, names::dns_subdomain);
        if !old["spec"].text("nodeName").is_empty() {
            let why = "may not be set on pods that are already bound to a node";
            problems.forbidden(&field, why);
        }
    }
    if let Some(generation) = after
        .number("observedGeneration")
        .filter(|generation| *generation < 0)
    {
        let field = field.child("observedGeneration");
        problems.invalid(&field, generation, "must be a non-negative integer");
    }
    problems.unless_same(
        &field.child("qosClass"),
        &json!(after.text("qosClass")),
        &json!(before.text("qosClass")),
    );
    validate_transitions(old, new, problems);
    validate_ips("podIPs", after, before, &field, problems);
    if let Some(first) = after["hostIPs"][0]["ip"].as_str() {
        if first != after.text("hostIP") {
            let field = field.child("hostIPs").index(0).child("ip");
            problems.invalid(&field, first, "must be equal to `hostIP`");
        }
        validate_ips("hostIPs", after, before, &field, problems);
    }
}

fn validate_conditions(status: &Value, field: &Field, problems: &mut Problems) {
    for (index, condition) in status.list("conditions").iter().enumerate() {
        let field = field.index(index);
        if let Some(generation) = condition
            .number("observedGeneration")
            .filter(|generation| *generation < 0)
        {
            let field = field.child("observedGeneration");
            problems.invalid(&field, generation, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            problems.unless_formed(&field.child("Type"), kind, names::qualified_name);
        }
    }
}

/// A container that has ended for good stays so.
fn validate_transitions(old: &Value, new: &Value, problems: &mut Problems) {
    let spec = &old["spec"];
    for (list, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
    ] {
        let field = Field::root("status").child(list);
        for (index, status) in old["status"].list(list).iter().enumerate() {
            let Some(ended) = status["state"].field("terminated") else {
                continue;
            };
            let name = status.text("name");
            let container = spec
                .list(containers)
                .iter()
                .find(|container| container.text("name") == name);
            let code = ended.number("exitCode").unwrap_or(0);
            let restarts = container.is_some_and(|container| may_restart(container, spec, code));
            let back = new["status"]
                .list(list)
                .iter()
                .any(|status| status.text("name") == name && !status["state"].has("terminated"));
            if back && !restarts && !may_restart_all(spec) {
                let why = "may not be transitioned to non-terminated state";
                problems.forbidden(&field.index(index).child("state"), why);
            }
        }
    }
}

/// `ContainerShouldRestart`: the container's rules, its policy, or else the pod's.
fn may_restart(container: &Value, spec: &Value, code: i64) -> bool {
    let own = container.text("restartPolicy");
    let rules = if own.is_empty() {
        &[]
    } else {
        container.list("restartPolicyRules")
    };
    for rule in rules {
        let (codes, operator) = (&rule["exitCodes"], rule["exitCodes"].text("operator"));
        let listed = codes.list("values").iter().any(|value| *value == code);
        if (operator == "In" && listed) || (operator == "NotIn" && !listed) {
            return true;
        }
    }
    match if own.is_empty() {
        spec.text("restartPolicy")
    } else {
        own
    } {
        "OnFailure" => code != 0,
        policy => policy != "Never",
    }
}

fn may_restart_all(spec: &Value) -> bool {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|key| spec.list(key))
        .flat_map(|container| container.list("restartPolicyRules"))
        .any(|rule| rule.text("action") == "RestartAllContainers")
}

fn validate_ips(key: &str, new: &Value, old: &Value, field: &Field, problems: &mut Problems) {
    let field = field.child(key);
    let (ips, known) = (new.list(key), old.list(key));
    for (index, ip) in ips.iter().enumerate() {
        if !known.iter().any(|known| known["ip"] == ip["ip"]) {
            problems.unless_formed(&field.index(index), ip.text("ip"), names::ip_address);
        }
    }
    let families: Vec<bool> = ips
        .iter()
        .filter_map(|ip| Some(ip.text("ip").parse::<IpAddr>().ok()?.is_ipv4()))
        .collect();
    if ips.len() > 2 || families.len() == 2 && families[0] == families[1] {
        let why = "may specify no more than one IP for each IP family";
        problems.invalid(&field, ips, why);
    }
}
