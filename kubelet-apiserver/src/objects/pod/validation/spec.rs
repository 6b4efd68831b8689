//! A pod's spec as a whole (`ValidatePodSpec`).

use std::collections::HashSet;

use serde_json::Value;

use super::super::super::problems::{Field, Problems};
use super::super::super::value::Fields;
use super::super::super::{metadata, names};
use super::{container, resources, security, volume};

const MAX_DNS_NAMESERVERS: usize = 3;
const MAX_DNS_SEARCH_PATHS: usize = 32;
const MAX_DNS_SEARCH_LIST_CHARS: usize = 2048;

pub(super) fn validate(spec: &Value, field: &Field, problems: &mut Problems) {
    if !spec.has("terminationGracePeriodSeconds") {
        problems.required(&field.child("terminationGracePeriodSeconds"), "");
    }
    let volumes = volume::validate(spec.list("volumes"), &field.child("volumes"), problems);
    container::validate_all(spec, &volumes, field, problems);
    resources::validate_pod(spec, field, problems);
    validate_ports_on_host(spec, field, problems);
    problems.unless_one_of(
        &field.child("restartPolicy"),
        spec.text("restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    problems.unless_one_of(
        &field.child("dnsPolicy"),
        spec.text("dnsPolicy"),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    metadata::validate_labels(&spec["nodeSelector"], &field.child("nodeSelector"), problems);
    security::validate_pod(spec, field, problems);
    validate_dns_config(spec, &field.child("dnsConfig"), problems);
    validate_gates(spec, field, problems);
    security::validate_host_users(spec, field, problems);
    security::validate_hostname_override(spec, field, problems);
    validate_names(spec, field, problems);
    if let Some(seconds) = spec.number("activeDeadlineSeconds") {
        problems.unless_within(&field.child("activeDeadlineSeconds"), seconds, 1, i32::MAX.into());
    }
    validate_tolerations(spec, &field.child("tolerations"), problems);
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let field = field.child("hostAliases").index(index);
        problems.unless_formed(&field.child("ip"), alias.text("ip"), names::ip_address);
        for (index, host) in alias.list("hostnames").iter().enumerate() {
            let field = field.child("hostnames").index(index);
            problems.unless_formed(&field, host.as_str().unwrap_or_default(), names::dns_subdomain);
        }
    }
    if spec.has("preemptionPolicy") {
        let policy = spec.text("preemptionPolicy");
        problems.unless_one_of(
            &field.child("preemptionPolicy"),
            policy,
            &["PreemptLowerPriority", "Never"],
        );
    }
    if let Some(overhead) = spec.field("overhead") {
        resources::validate_overhead(overhead, &field.child("overhead"), problems);
    }
    if let Some(os) = spec.field("os") {
        match os.text("name") {
            "" => problems.required(&field.child("os").child("name"), ""),
            name => problems.unless_one_of(&field.child("os"), name, &["linux", "windows"]),
        }
    }
}

fn validate_names(spec: &Value, field: &Field, problems: &mut Problems) {
    type Form = fn(&str) -> Vec<String>;
    let forms: [(&str, Form); 6] = [
        ("serviceAccountName", names::dns_subdomain),
        ("nodeName", names::dns_subdomain),
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
        ("priorityClassName", names::dns_subdomain),
        ("runtimeClassName", names::dns_subdomain),
    ];
    for (key, form) in forms {
        let value = spec.text(key);
        if !value.is_empty() || key == "runtimeClassName" && spec.has(key) {
            problems.unless_formed(&field.child(key), value, form);
        }
    }
}

fn validate_gates(spec: &Value, field: &Field, problems: &mut Problems) {
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        let field = field.child("readinessGates").index(index).child("conditionType");
        problems.unless_formed(&field, gate.text("conditionType"), names::qualified_name);
    }
    let mut seen = HashSet::new();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let field = field.child("schedulingGates").index(index);
        problems.unless_formed(&field, gate.text("name"), names::qualified_name);
        if !seen.insert(gate.text("name")) {
            problems.duplicate(&field, gate.text("name"));
        }
    }
}

/// On the host's network a container port is a port of the host.
fn validate_ports_on_host(spec: &Value, field: &Field, problems: &mut Problems) {
    if !spec.flag("hostNetwork") {
        return;
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        let field = field.child("containers").index(index).child("ports");
        for (index, port) in container.list("ports").iter().enumerate() {
            let host_port = port.number("hostPort").unwrap_or(0);
            if port.number("containerPort") != Some(host_port) {
                let why = "must match `containerPort` when `hostNetwork` is true";
                problems.invalid(&field.index(index).child("hostPort"), host_port, why);
            }
        }
    }
}

fn validate_dns_config(spec: &Value, field: &Field, problems: &mut Problems) {
    let config = &spec["dnsConfig"];
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            problems.required(field, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.list("nameservers").is_empty() {
            let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            problems.required(&field.child("nameservers"), why);
            return;
        }
    }
    let (servers, searches) = (config.list("nameservers"), config.list("searches"));
    if servers.len() > MAX_DNS_NAMESERVERS {
        let why = format!("must not have more than {MAX_DNS_NAMESERVERS} nameservers");
        problems.invalid(&field.child("nameservers"), servers, &why);
    }
    for (index, server) in servers.iter().enumerate() {
        let field = field.child("nameservers").index(index);
        problems.unless_formed(&field, server.as_str().unwrap_or_default(), names::ip_address);
    }
    if searches.len() > MAX_DNS_SEARCH_PATHS {
        let why = format!("must not have more than {MAX_DNS_SEARCH_PATHS} search paths");
        problems.invalid(&field.child("searches"), searches, &why);
    }
    let joined: Vec<&str> = searches.iter().filter_map(Value::as_str).collect();
    if joined.join(" ").len() > MAX_DNS_SEARCH_LIST_CHARS {
        let why = format!(
            "must not have more than {MAX_DNS_SEARCH_LIST_CHARS} characters (including spaces) in the search list"
        );
        problems.invalid(&field.child("searches"), searches, &why);
    }
    for (index, search) in joined.iter().enumerate() {
        problems.unless_formed(&field.child("searches").index(index), search, names::dns_search);
    }
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            problems.required(&field.child("options").index(index), "must not be empty");
        }
    }
}

/// `ValidateTolerations`.
pub(in super::super::super) fn validate_tolerations(spec: &Value, field: &Field, problems: &mut Problems) {
    for (index, toleration) in spec.list("tolerations").iter().enumerate() {
        validate_toleration(toleration, &field.index(index), problems);
    }
}

fn validate_toleration(toleration: &Value, field: &Field, problems: &mut Problems) {
    let (key, operator) = (toleration.text("key"), toleration.text("operator"));
    let (value, effect) = (toleration.text("value"), toleration.text("effect"));
    if !key.is_empty() {
        problems.unless_formed(&field.child("key"), key, names::qualified_name);
    } else if operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        problems.invalid(&field.child("operator"), operator, why);
    }
    if toleration.has("tolerationSeconds") && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        problems.invalid(&field.child("effect"), effect, why);
    }
    match operator {
        "" | "Equal" => {
            let found = names::label_value(value);
            if !found.is_empty() {
                problems.invalid(&field.child("operator"), value, &found.join(";"));
            }
        }
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            problems.invalid(&field.child("operator"), value, why);
        }
        "Exists" => {}
        "Lt" | "Gt" => problems.not_supported(
            &field.child("operator"),
            operator,
            &["Equal", "Exists", "Lt", "Gt"],
        ),
        _ => problems.not_supported(&field.child("operator"), operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        problems.unless_one_of(&field.child("effect"), effect, &supported);
    }
}
