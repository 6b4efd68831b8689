//! The nodes that can reach a volume: by the labels of the driver instead of those of all nodes
//! (`translateTopologyFromInTreeToCSI`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeSpec,
};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
pub(super) const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const OLD_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// Between the zones in a label (`labelMultiZoneDelimiter`).
pub(super) const ZONES_DELIMITER: &str = "__";

/// The labels of a driver.
pub(super) struct Keys {
    pub(super) zone: &'static str,
    pub(super) region: Option<&'static str>,
}

/// Replaces the keys of zone and region in the node affinity. Without one, the labels of the volume become the node
/// affinity.
pub(super) fn translate(volume: &mut PersistentVolume, keys: Keys) {
    let (zone, region) = labels_of(volume);
    let labels = volume.metadata.labels.clone().unwrap_or_default();
    let Some(spec) = &mut volume.spec else { return };
    let label = |key: &str| labels.get(key).filter(|value| !value.is_empty());
    if has_key(spec, zone) {
        replace(spec, zone, keys.zone);
    } else if let Some(zones) = label(zone) {
        add(spec, keys.zone, zones);
    }
    match keys.region {
        Some(of_driver) if has_key(spec, region) => replace(spec, region, of_driver),
        Some(of_driver) => {
            if let Some(regions) = label(region) {
                add(spec, of_driver, regions);
            }
        }
        // New nodes have no old label.
        None if region == OLD_REGION => replace(spec, OLD_REGION, REGION),
        None => {}
    }
}

/// Which labels the volume has for zone and region (`getTopologyLabel`).
fn labels_of(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let spec = volume.spec.as_ref();
    let in_affinity = |key| spec.is_some_and(|spec| has_key(spec, key));
    let labels = volume.metadata.labels.as_ref();
    let in_labels = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
    let is_old = match (in_affinity(ZONE), in_affinity(OLD_ZONE)) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => !in_labels(ZONE) && in_labels(OLD_ZONE),
    };
    match is_old {
        true => (OLD_ZONE, OLD_REGION),
        false => (ZONE, REGION),
    }
}

fn terms(spec: &PersistentVolumeSpec) -> impl Iterator<Item = &NodeSelectorTerm> {
    let required = spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref());
    required
        .into_iter()
        .flat_map(|required| &required.node_selector_terms)
}

fn has_key(spec: &PersistentVolumeSpec, key: &str) -> bool {
    let mut expressions = terms(spec).flat_map(|term| term.match_expressions.iter().flatten());
    expressions.any(|expression| expression.key == key)
}

fn replace(spec: &mut PersistentVolumeSpec, from: &str, to: &str) {
    let required = spec
        .node_affinity
        .as_mut()
        .and_then(|affinity| affinity.required.as_mut());
    let terms = required
        .into_iter()
        .flat_map(|required| &mut required.node_selector_terms);
    for expression in terms.flat_map(|term| term.match_expressions.iter_mut().flatten()) {
        if expression.key == from {
            to.clone_into(&mut expression.key);
        }
    }
}

/// Requires these values in each term (`addTopology`).
fn add(spec: &mut PersistentVolumeSpec, key: &str, values: &str) {
    let values = values.split(ZONES_DELIMITER).map(str::trim);
    let values: BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.is_empty() {
        return;
    }
    let required = spec
        .node_affinity
        .get_or_insert_default()
        .required
        .get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions
            .get_or_insert_default()
            .push(NodeSelectorRequirement {
                key: key.to_owned(),
                operator: "In".to_owned(),
                values: Some(values.iter().map(ToString::to_string).collect()),
            });
    }
}
