//! The patch of a node's status (`PatchNodeStatus`).

use k8s_openapi::api::core::v1::Node;
use kubelet_core::strategic_merge_patch;
use serde_json::{Value, json};

/// The patch of the `status` subresource from `old` to `new`, with the differences of metadata and status.
/// Without differences it is `{}`; sending it still shows that the node is alive.
pub(crate) fn node_status_patch(old: &Node, new: &Node) -> Result<Value, serde_json::Error> {
    let (mut old, mut new) = (serde_json::to_value(old)?, serde_json::to_value(new)?);
    for node in [&mut old, &mut new] {
        node.as_object_mut().map(|node| node.remove("spec"));
    }
    // The API merges addresses by type, but a node may have several addresses of one type. So changed addresses
    // are replaced as a whole.
    let addresses = |node: &Value| node["status"]["addresses"].clone();
    let (before, after) = (addresses(&old), addresses(&new));
    let replaced = before != after && before.as_array().is_some_and(|list| !list.is_empty());
    if replaced {
        new["status"]["addresses"] = before;
    }
    let mut patch = strategic_merge_patch(&old, &new);
    if replaced {
        let mut list = after.as_array().cloned().unwrap_or_default();
        list.push(json!({"$patch": "replace"}));
        patch["status"]["addresses"] = list.into();
    }
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(old: Value, new: Value) -> Value {
        let node = |value| serde_json::from_value(value).unwrap();
        node_status_patch(&node(old), &node(new)).unwrap()
    }

    #[test]
    fn what_is_asked_of_the_spec_is_not_the_status() {
        let unschedulable = json!({"spec": {"unschedulable": true}, "status": {}});
        assert_eq!(patch(unschedulable, json!({"status": {}})), json!({}));
        let ready = |at: &str| {
            json!({"metadata": {"name": "n"}, "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}]}})
        };
        assert_eq!(
            patch(ready("2026-01-01T09:00:00Z"), ready("2026-01-01T10:00:00Z")),
            json!({"status": {
                "$setElementOrder/conditions": [{"type": "Ready"}],
                "conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T10:00:00Z"}],
            }})
        );
    }

    #[test]
    fn addresses_are_replaced() {
        let addresses = |list: &[(&str, &str)]| {
            let list: Vec<Value> = list
                .iter()
                .map(|(kind, address)| json!({"type": kind, "address": address}))
                .collect();
            json!({"status": {"addresses": list}})
        };
        let one = addresses(&[("InternalIP", "10.0.0.1"), ("Hostname", "n")]);
        let two = addresses(&[
            ("InternalIP", "10.0.0.1"),
            ("InternalIP", "fd00::1"),
            ("Hostname", "n"),
        ]);
        let mut expected = two.clone();
        expected["status"]["addresses"]
            .as_array_mut()
            .unwrap()
            .push(json!({"$patch": "replace"}));
        assert_eq!(patch(one.clone(), two.clone()), expected);
        assert_eq!(patch(json!({"status": {}}), two.clone()), two);
        assert_eq!(patch(two.clone(), two), json!({}));
    }
}
