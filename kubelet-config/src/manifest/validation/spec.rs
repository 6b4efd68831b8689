//! A pod's spec as a whole.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};

use super::{Field, Problems, container, names, os, resources, scheduling, security, toleration, volume};

const MAX_DNS_NAMESERVERS: usize = 3;
const MAX_DNS_SEARCH_PATHS: usize = 32;
const MAX_DNS_SEARCH_LIST_CHARS: usize = 2048;

pub(super) fn validate(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    let volumes = volume::validate(
        spec.volumes.as_deref().unwrap_or_default(),
        &field.child("volumes"),
        problems,
    );
    container::validate_all(spec, &volumes, field, problems);
    resources::validate_pod(spec, field, problems);
    security::validate_pod(spec, field, problems);
    scheduling::validate(spec, field, problems);
    volume::validate_tokens(spec, field, problems);

    let restart = spec.restart_policy.as_deref().unwrap_or_default();
    problems.unless_one_of(
        &field.child("restartPolicy"),
        restart,
        &["Always", "OnFailure", "Never"],
    );
    let dns = spec.dns_policy.as_deref().unwrap_or_default();
    let supported = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    problems.unless_one_of(&field.child("dnsPolicy"), dns, &supported);
    validate_dns_config(dns, spec.dns_config.as_ref(), &field.child("dnsConfig"), problems);

    let selector = field.child("nodeSelector");
    for (key, value) in spec.node_selector.iter().flatten() {
        problems.unless_formed(&selector, key, names::qualified_name);
        problems.unless_formed(&selector, value, names::label_value);
    }
    validate_names(spec, field, problems);
    validate_gates(spec, field, problems);
    if let Some(seconds) = spec.active_deadline_seconds {
        problems.unless_within(&field.child("activeDeadlineSeconds"), seconds, 1, i32::MAX.into());
    }
    for (index, tolerated) in spec.tolerations.iter().flatten().enumerate() {
        toleration::validate(tolerated, &field.child("tolerations").index(index), problems);
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let field = field.child("hostAliases").index(index);
        problems.unless_formed(&field.child("ip"), &alias.ip, names::ip_address);
        for (index, host) in alias.hostnames.iter().flatten().enumerate() {
            problems.unless_formed(&field.child("hostnames").index(index), host, names::dns_subdomain);
        }
    }
    if let Some(policy) = &spec.preemption_policy {
        problems.unless_one_of(
            &field.child("preemptionPolicy"),
            policy,
            &["PreemptLowerPriority", "Never"],
        );
    }
    os::validate(spec, field, problems);
    if spec.ephemeral_containers.is_some() {
        problems.forbidden(&field.child("ephemeralContainers"), "cannot be set on create");
    }
}

fn validate_names(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    for (name, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if let Some(value) = value {
            problems.unless_formed(&field.child(name), value, names::dns_label);
        }
    }
    for (name, value) in [
        ("serviceAccountName", &spec.service_account_name),
        ("nodeName", &spec.node_name),
        ("priorityClassName", &spec.priority_class_name),
        ("runtimeClassName", &spec.runtime_class_name),
    ] {
        if let Some(value) = value {
            problems.unless_formed(&field.child(name), value, names::dns_subdomain);
        }
    }
}

fn validate_gates(spec: &PodSpec, field: &Field, problems: &mut Problems) {
    for (index, gate) in spec.readiness_gates.iter().flatten().enumerate() {
        let field = field.child("readinessGates").index(index).child("conditionType");
        problems.unless_formed(&field, &gate.condition_type, names::qualified_name);
    }
    let mut seen = HashSet::new();
    for (index, gate) in spec.scheduling_gates.iter().flatten().enumerate() {
        let field = field.child("schedulingGates").index(index);
        problems.unless_formed(&field, &gate.name, names::qualified_name);
        if !seen.insert(&gate.name) {
            problems.duplicate(&field, &gate.name);
        }
    }
    if !seen.is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        problems.forbidden(&field.child("nodeName"), why);
    }
}

fn validate_dns_config(policy: &str, config: Option<&PodDNSConfig>, field: &Field, problems: &mut Problems) {
    let servers = config
        .and_then(|config| config.nameservers.as_deref())
        .unwrap_or_default();
    if policy == "None" && servers.is_empty() {
        let why = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        problems.required(&field.child("nameservers"), why);
        return;
    }
    if servers.len() > MAX_DNS_NAMESERVERS {
        problems.invalid(
            &field.child("nameservers"),
            servers,
            "must not have more than 3 nameservers",
        );
    }
    for (index, server) in servers.iter().enumerate() {
        problems.unless_formed(
            &field.child("nameservers").index(index),
            server,
            names::ip_address,
        );
    }
    let searches = config
        .and_then(|config| config.searches.as_deref())
        .unwrap_or_default();
    let length = searches.join(" ").len();
    if searches.len() > MAX_DNS_SEARCH_PATHS || length > MAX_DNS_SEARCH_LIST_CHARS {
        let why = "must not have more than 32 search paths, or 2048 characters of them";
        problems.invalid(&field.child("searches"), searches, why);
    }
    for (index, search) in searches.iter().enumerate() {
        problems.unless_formed(&field.child("searches").index(index), search, names::dns_search);
    }
    let options = config
        .and_then(|config| config.options.as_deref())
        .unwrap_or_default();
    for (index, option) in options.iter().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            problems.required(&field.child("options").index(index), "must not be empty");
        }
    }
}
