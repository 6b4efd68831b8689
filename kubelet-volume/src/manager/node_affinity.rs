//! Whether a persistent volume can be reached from this node (`CheckNodeAffinity`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use kubelet_core::NodeGetter;

use crate::{Error, Result, VolumeSpec};

pub(crate) async fn check(node: &dyn NodeGetter, spec: &VolumeSpec) -> Result<()> {
    let affinity = spec
        .persistent_volume()
        .and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else {
        return Ok(());
    };
    let node = node
        .node()
        .await
        .map_err(|error| Error::failed(error.to_string()))?;
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    match required
        .node_selector_terms
        .iter()
        .any(|term| matches(term, labels))
    {
        true => Ok(()),
        false => Err(Error::failed("no matching NodeSelectorTerms")),
    }
}

/// A term without requirements matches nothing.
fn matches(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>) -> bool {
    let on_labels = term.match_expressions.as_deref().unwrap_or_default();
    let on_fields = term.match_fields.as_deref().unwrap_or_default();
    // Only the name of the node is a field, and the kubelet gives none here.
    !on_labels.is_empty()
        && on_fields.is_empty()
        && on_labels.iter().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let found = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let number = |text: &String| text.parse::<i64>().ok();
    let bound = values.first().and_then(number);
    match requirement.operator.as_str() {
        "In" => found.is_some_and(|found| values.contains(found)),
        "NotIn" => found.is_none_or(|found| !values.contains(found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => found
            .and_then(number)
            .zip(bound)
            .is_some_and(|(found, bound)| found > bound),
        "Lt" => found
            .and_then(number)
            .zip(bound)
            .is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Node, PersistentVolume};
    use kubelet_core::FixedNode;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn some_term_must_match_the_labels() {
        let node: Node =
            serde_json::from_value(json!({"metadata": {"labels": {"host": "a", "size": "3"}}})).unwrap();
        let node = FixedNode::new(Arc::new(node));
        for (terms, fits) in [
            (
                json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": ["a", "b"]}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [{"key": "host", "operator": "In", "values": ["b"]}]}]),
                false,
            ),
            (
                json!([{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["2"]}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [{"key": "size", "operator": "Lt", "values": ["2"]}]}]),
                false,
            ),
            (
                json!([{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["2"]}]}]),
                true,
            ),
            (
                json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}]),
                true,
            ),
            (json!([{}]), false),
        ] {
            let volume: PersistentVolume = serde_json::from_value(
                json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}),
            )
            .unwrap();
            let spec = VolumeSpec::persistent(Arc::new(volume), false);
            assert_eq!(check(&node, &spec).await.is_ok(), fits, "{spec:?}");
        }
    }
}
