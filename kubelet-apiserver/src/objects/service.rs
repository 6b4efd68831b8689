//! Services, as far as an agent reads them. There are no load balancers, and cluster IPs come from a fixed range.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::super::request::{Attributes, View};
use super::problems::{Field, Problems};
use super::value::Fields;
use super::{metadata, names};

/// The range of cluster IPs: `10.0.0.0/24` without its first address.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

pub(super) fn set_defaults(service: &mut Value) {
    let spec = &mut service["spec"];
    spec.default_text("sessionAffinity", "None");
    spec.default_text("type", "ClusterIP");
    if spec.text("sessionAffinity") == "ClientIP" {
        spec["sessionAffinityConfig"]["clientIP"].default_value("timeoutSeconds", 10800);
    } else {
        spec.fields_mut().remove("sessionAffinityConfig");
    }
    for port in spec.list_mut("ports") {
        port.default_text("protocol", "TCP");
        if !port.has("targetPort") || port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = spec.text("type").to_owned();
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || !spec.list("externalIPs").is_empty() {
        spec.default_text("externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        spec.default_text("internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.default_value("allocateLoadBalancerNodePorts", true);
    }
    service.default_value("status", json!({"loadBalancer": {}}));
}

/// Assigns a cluster IP to a new service.
pub(super) fn prepare_create(attributes: &Attributes, view: &dyn View, service: &mut Value) {
    service["status"] = json!({"loadBalancer": {}});
    let spec = &mut service["spec"];
    if spec.text("type") == "ExternalName" {
        return;
    }
    if spec.text("clusterIP").is_empty() {
        let taken: Vec<String> = view
            .list(attributes.resource, "")
            .iter()
            .map(|service| service["spec"].text("clusterIP").to_owned())
            .collect();
        let first = u32::from(FIRST);
        let free = (first..)
            .map(|ip| Ipv4Addr::from(ip).to_string())
            .find(|ip| !taken.contains(ip));
        spec["clusterIP"] = json!(free);
    }
    let ip = spec["clusterIP"].clone();
    spec.default_value("clusterIPs", json!([ip]));
    spec.default_value("ipFamilies", json!(["IPv4"]));
    spec.default_text("ipFamilyPolicy", "SingleStack");
}

pub(super) fn prepare_update(attributes: &Attributes, old: &Value, new: &mut Value) {
    if attributes.subresource == "status" {
        metadata::copy_field(old, new, "spec");
        return;
    }
    metadata::copy_field(old, new, "status");
    for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !new["spec"].has(key) {
            metadata::copy_field(&old["spec"], &mut new["spec"], key);
        }
    }
}

pub(super) fn validate(service: &Value, problems: &mut Problems) {
    metadata::validate(service, true, names::dns_1035_label, problems);
    let (spec, field) = (&service["spec"], Field::root("spec"));
    let ports = spec.list("ports");
    let kind = spec.text("type");
    if ports.is_empty() && spec.text("clusterIP") != "None" && kind != "ExternalName" {
        problems.required(&field.child("ports"), "");
    }
    for (index, port) in ports.iter().enumerate() {
        let field = field.child("ports").index(index);
        match port.text("name") {
            "" if ports.len() > 1 => problems.required(&field.child("name"), ""),
            "" => {}
            name => problems.unless_formed(&field.child("name"), name, names::dns_label),
        }
        let number = port.number("port").unwrap_or(0);
        problems.unless_within(&field.child("port"), number, 1, 65535);
        let protocols = ["SCTP", "TCP", "UDP"];
        problems.unless_one_of(&field.child("protocol"), port.text("protocol"), &protocols);
    }
    metadata::validate_labels(&spec["selector"], &field.child("selector"), problems);
    let affinities = ["ClientIP", "None"];
    problems.unless_one_of(
        &field.child("sessionAffinity"),
        spec.text("sessionAffinity"),
        &affinities,
    );
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    problems.unless_one_of(&field.child("type"), kind, &kinds);
}

pub(super) fn validate_update(old: &Value, new: &Value, problems: &mut Problems) {
    metadata::validate_update(new, old, problems);
    let (before, after) = (&old["spec"], &new["spec"]);
    if before.text("type") != "ExternalName" && after.text("type") != "ExternalName" {
        let field = Field::root("spec").child("clusterIPs").index(0);
        let first = |spec: &Value| spec["clusterIPs"][0].clone();
        if first(before) != first(after) {
            problems.invalid(&field, after["clusterIPs"].clone(), "may not change once set");
        }
    }
    validate(new, problems);
}
