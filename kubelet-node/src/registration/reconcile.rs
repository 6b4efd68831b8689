//! The fields of an existing node that belong to the kubelet.

use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;

use crate::NodeConfig;
use crate::local_node::CONTROLLER_MANAGED_ATTACH;
use crate::reservation::is_huge_pages;
use crate::setters::machine::is_extended;
use crate::setters::status;

/// The labels that a kubelet updates (`updateDefaultLabels`).
const DEFAULT_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Updates `existing` from `initial`, the node that the agent would register. Returns whether anything changed.
pub(super) fn reconcile(config: &NodeConfig, initial: &Node, existing: &mut Node) -> bool {
    let mut changed = annotation(initial, existing);
    changed |= default_labels(initial, existing);
    let none = NodeStatus::default();
    let initial = initial.status.as_ref().unwrap_or(&none);
    let existing = status(existing);
    changed |= default_resources(initial, existing);
    if config.reset_extended_resources {
        changed |= reset_extended_resources(existing);
    }
    changed |= huge_pages(initial, existing);
    changed
}

/// (`reconcileCMADAnnotationWithExistingNode`)
fn annotation(initial: &Node, existing: &mut Node) -> bool {
    let of = |node: &Node| {
        let annotations = node.metadata.annotations.as_ref();
        annotations
            .and_then(|annotations| annotations.get(CONTROLLER_MANAGED_ATTACH))
            .cloned()
    };
    let (wanted, there) = (of(initial), of(existing));
    if wanted.as_deref().unwrap_or_default() == there.as_deref().unwrap_or_default() {
        return false;
    }
    let annotations = existing.metadata.annotations.get_or_insert_default();
    match wanted {
        Some(wanted) => annotations.insert(CONTROLLER_MANAGED_ATTACH.to_owned(), wanted),
        None => annotations.remove(CONTROLLER_MANAGED_ATTACH),
    };
    true
}

fn default_labels(initial: &Node, existing: &mut Node) -> bool {
    let Some(wanted) = &initial.metadata.labels else {
        return false;
    };
    let labels = existing.metadata.labels.get_or_insert_default();
    let mut changed = false;
    for label in DEFAULT_LABELS {
        let Some(value) = wanted.get(label) else {
            continue;
        };
        // An empty value removes the label.
        if labels.get(label).map(String::as_str).unwrap_or_default() != value {
            labels.insert(label.to_owned(), value.clone());
            changed = true;
        }
        if value.is_empty() {
            labels.remove(label);
        }
    }
    changed
}

/// Fills in missing lists (`updateDefaultResources`).
fn default_resources(initial: &NodeStatus, existing: &mut NodeStatus) -> bool {
    let mut changed = false;
    for (wanted, there) in [
        (&initial.capacity, &mut existing.capacity),
        (&initial.allocatable, &mut existing.allocatable),
    ] {
        if there.is_none() {
            changed |= wanted.is_some();
            *there = Some(wanted.clone().unwrap_or_default());
        }
    }
    changed
}

/// (`reconcileExtendedResource`)
fn reset_extended_resources(existing: &mut NodeStatus) -> bool {
    let mut changed = false;
    let allocatable = existing.allocatable.get_or_insert_default();
    for (resource, amount) in existing.capacity.iter_mut().flatten() {
        if is_extended(resource) {
            *amount = Quantity("0".to_owned());
            allocatable.insert(resource.clone(), amount.clone());
            changed = true;
        }
    }
    changed
}

/// (`reconcileHugePageResource`)
fn huge_pages(initial: &NodeStatus, existing: &mut NodeStatus) -> bool {
    let capacity = existing.capacity.get_or_insert_default();
    let allocatable = existing.allocatable.get_or_insert_default();
    let mut changed = false;
    let supported = initial
        .capacity
        .iter()
        .flatten()
        .filter(|(resource, _)| is_huge_pages(resource));
    for (resource, wanted) in supported {
        let known = capacity.contains_key(resource);
        if !known || !equal(&capacity[resource], wanted) {
            capacity.insert(resource.clone(), wanted.clone());
            changed = true;
        }
        let zero = Quantity("0".to_owned());
        let wanted = initial
            .allocatable
            .as_ref()
            .and_then(|list| list.get(resource))
            .unwrap_or(&zero);
        let there = allocatable.get(resource).unwrap_or(&zero);
        if !known || !equal(there, wanted) {
            allocatable.insert(resource.clone(), wanted.clone());
            changed = true;
        }
    }
    let before = capacity.len();
    capacity.retain(|resource, _| {
        let machine_has = initial
            .capacity
            .as_ref()
            .is_some_and(|list| list.contains_key(resource));
        let keep = !is_huge_pages(resource) || machine_has;
        if !keep {
            tracing::info!(
                resource,
                "removing huge page resource which is no longer supported"
            );
            allocatable.remove(resource);
        }
        keep
    });
    changed || capacity.len() != before
}

fn equal(a: &Quantity, b: &Quantity) -> bool {
    match (Amount::try_from(a), Amount::try_from(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn reconciled(config: &NodeConfig, initial: Value, existing: Value) -> (Value, bool) {
        let mut node: Node = serde_json::from_value(existing).unwrap();
        let changed = reconcile(config, &serde_json::from_value(initial).unwrap(), &mut node);
        let mut node = serde_json::to_value(node).unwrap();
        for field in ["apiVersion", "kind"] {
            node.as_object_mut().unwrap().remove(field);
        }
        (node, changed)
    }

    #[test]
    fn what_is_the_kubelets_becomes_as_it_has_to_be() {
        let (capacity, both) = (
            |list: Value| json!({"metadata": {}, "status": {"capacity": list, "allocatable": {}}}),
            |capacity: Value, allocatable: Value| json!({"metadata": {"labels": {}}, "status": {"capacity": capacity, "allocatable": allocatable}}),
        );
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}, "status": {"capacity": {}, "allocatable": {}}});
        let annotated = |value: &str| json!({"metadata": {"annotations": {CONTROLLER_MANAGED_ATTACH: value}}, "status": {"capacity": {}, "allocatable": {}}});
        let mut bare =
            json!({"metadata": {"annotations": {}}, "status": {"capacity": {}, "allocatable": {}}});
        let cases = [
            // what it is about, initial, existing, wanted, changed
            (
                "default labels, and no others",
                labelled(
                    json!({"kubernetes.io/os": "linux", "kubernetes.io/hostname": "n", "example.com/rack": "7"}),
                ),
                labelled(json!({"kubernetes.io/os": "plan9", "example.com/mine": "1"})),
                labelled(
                    json!({"kubernetes.io/os": "linux", "kubernetes.io/hostname": "n", "example.com/mine": "1"}),
                ),
                true,
            ),
            (
                "labels as they are",
                labelled(json!({"kubernetes.io/os": "linux"})),
                labelled(json!({"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"})),
                labelled(json!({"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a"})),
                false,
            ),
            (
                "an empty label goes",
                labelled(json!({"topology.kubernetes.io/zone": ""})),
                labelled(json!({"topology.kubernetes.io/zone": "a"})),
                labelled(json!({})),
                true,
            ),
            (
                "the annotation",
                annotated("true"),
                bare.clone(),
                annotated("true"),
                true,
            ),
            (
                "no annotation",
                bare.clone(),
                annotated("true"),
                bare.clone(),
                true,
            ),
            (
                "extended resources become zero",
                both(json!({}), json!({})),
                both(
                    json!({"example.com/gpu": "4", "cpu": "2"}),
                    json!({"example.com/gpu": "3"}),
                ),
                both(
                    json!({"example.com/gpu": "0", "cpu": "2"}),
                    json!({"example.com/gpu": "0"}),
                ),
                true,
            ),
            (
                "huge pages: other, new, gone, the same",
                both(
                    json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "0", "hugepages-64Ki": "64Ki"}),
                    json!({"hugepages-2Mi": "2Mi", "hugepages-1Gi": "0", "hugepages-64Ki": "64Ki"}),
                ),
                both(
                    json!({"hugepages-2Mi": "8Mi", "hugepages-32Mi": "0", "hugepages-64Ki": "65536"}),
                    json!({"hugepages-2Mi": "8Mi", "hugepages-32Mi": "0", "hugepages-64Ki": "64Ki"}),
                ),
                both(
                    json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "0", "hugepages-64Ki": "65536"}),
                    json!({"hugepages-2Mi": "2Mi", "hugepages-1Gi": "0", "hugepages-64Ki": "64Ki"}),
                ),
                true,
            ),
            (
                "no lists at all",
                both(json!({"cpu": "2"}), json!({"cpu": "1"})),
                json!({"metadata": {"labels": {}}, "status": {}}),
                both(json!({"cpu": "2"}), json!({"cpu": "1"})),
                true,
            ),
            (
                "taints and other resources stay",
                capacity(json!({"cpu": "4"})),
                json!({"metadata": {}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
                    "status": {"capacity": {"cpu": "2"}, "allocatable": {}}}),
                json!({"metadata": {}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
                    "status": {"capacity": {"cpu": "2"}, "allocatable": {}}}),
                false,
            ),
        ];
        for (about, initial, existing, wanted, changed) in cases {
            assert_eq!(
                reconciled(&NodeConfig::new("n"), initial, existing),
                (wanted, changed),
                "{about}"
            );
        }
        bare["metadata"] = json!({});
        let mut kept = NodeConfig::new("n");
        kept.reset_extended_resources = false;
        let gpus = capacity(json!({"example.com/gpu": "4"}));
        assert_eq!(
            reconciled(&kept, bare, gpus.clone()),
            (gpus, false),
            "a checkpoint knows them"
        );
    }
}
