//! Nodes.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::super::request::Attributes;
use super::problems::{Field, Problems};
use super::quantity;
use super::value::Fields;
use super::{metadata, names};

/// Sets the default of `allocatable`, which is the capacity, and writes amounts in canonical form.
pub(super) fn set_defaults(node: &mut Value) {
    agree_on_pod_cidrs(&mut node["spec"]);
    if !node["status"].is_object() {
        return;
    }
    for list in ["capacity", "allocatable"] {
        for (_, amount) in node["status"]
            .get_mut(list)
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            if let Some(quantity) = quantity::of(amount) {
                *amount = json!(quantity.round_up_to_milli().to_string());
            }
        }
    }
    if let Some(capacity) = node["status"].field("capacity").cloned() {
        node["status"].default_value("allocatable", capacity);
    }
}

/// `podCIDR` is the first of `podCIDRs`.
fn agree_on_pod_cidrs(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    let one = spec.text("podCIDR").to_owned();
    if !one.is_empty() && spec["podCIDRs"][0] != one.as_str() {
        spec["podCIDRs"] = json!([one]);
    } else if let Some(first) = spec.list("podCIDRs").first().cloned() {
        spec["podCIDR"] = first;
    }
}

pub(super) fn prepare_update(attributes: &Attributes, old: &Value, new: &mut Value) {
    let kept = if attributes.subresource == "status" {
        "spec"
    } else {
        "status"
    };
    metadata::copy_field(old, new, kept);
}

pub(super) fn validate(node: &Value, problems: &mut Problems) {
    metadata::validate(node, false, names::dns_subdomain, problems);
    validate_taints(node, problems);
    validate_resources(node, problems);
}

pub(super) fn validate_update(attributes: &Attributes, old: &Value, new: &Value, problems: &mut Problems) {
    if attributes.subresource.is_empty() {
        validate(new, problems);
    }
    metadata::validate_update(new, old, problems);
    validate_resources(new, problems);
    let mut seen = HashSet::new();
    for (index, address) in new["status"].list("addresses").iter().enumerate() {
        if !seen.insert((address.text("type"), address.text("address"))) {
            // The API server prints its internal type here, whose fields have no JSON names.
            let shown = json!({"Type": address["type"], "Address": address["address"]});
            problems.duplicate(&Field::root("status").child("addresses").index(index), shown);
        }
    }
    let (old, new, field) = (&old["spec"], &new["spec"], Field::root("spec"));
    if !old.list("podCIDRs").is_empty() && old["podCIDRs"] != new["podCIDRs"] {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        problems.forbidden(&field.child("podCIDRs"), why);
    }
    if !old.text("providerID").is_empty() && old["providerID"] != new["providerID"] {
        let why = "node updates may not change providerID except from \"\" to valid";
        problems.forbidden(&field.child("providerID"), why);
    }
    if old.text("externalID") != new.text("externalID") {
        problems.forbidden(&field.child("externalID"), "may not be updated");
    }
}

/// The reference reports these fields below `metadata`.
fn validate_taints(node: &Value, problems: &mut Problems) {
    let field = Field::root("metadata").child("taints");
    let mut seen = HashSet::new();
    for (index, taint) in node["spec"].list("taints").iter().enumerate() {
        let field = field.index(index);
        problems.unless_formed(&field.child("key"), taint.text("key"), names::qualified_name);
        let found = names::label_value(taint.text("value"));
        if !found.is_empty() {
            problems.invalid(&field.child("value"), taint.text("value"), &found.join(";"));
        }
        match taint.text("effect") {
            "" => problems.required(&field.child("effect"), ""),
            effect => problems.unless_one_of(
                &field.child("effect"),
                effect,
                &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            ),
        }
        if !seen.insert((taint.text("key"), taint.text("effect"))) {
            problems.duplicate(&field, taint.clone());
        }
    }
}

fn validate_resources(node: &Value, problems: &mut Problems) {
    for list in ["capacity", "allocatable"] {
        for (resource, amount) in node["status"].entries(list) {
            let field = Field::root("status").child(list).child(resource);
            let Some(quantity) = quantity::of(amount) else {
                continue;
            };
            if quantity.amount.is_negative() {
                problems.invalid(&field, amount.clone(), "must be greater than or equal to 0");
            }
            let extended = resource.contains('/') && !resource.contains("kubernetes.io/");
            if (extended || resource == "pods") && !quantity.amount.is_whole() {
                problems.invalid(&field, amount.clone(), "must be an integer");
            }
        }
    }
}
