//! Devices in the node's status, and in the node that admission sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::NodeGetter;
use kubelet_core::quantity::Amount;
use kubelet_node::NodeStatusSetter;
use kubelet_resources::devices::DeviceManagerHandle;

/// Sets capacity and allocatable of the resources of device plugins (the part of `nodestatus.MachineInfo` about them).
pub(super) struct Devices {
    devices: DeviceManagerHandle,
}

impl Devices {
    pub(super) fn new(devices: DeviceManagerHandle) -> Self {
        Self { devices }
    }
}

#[async_trait]
impl NodeStatusSetter for Devices {
    fn name(&self) -> &str {
        "devices"
    }

    async fn set(&self, node: &mut Node) -> kubelet_node::Result<()> {
        let known = self.devices.capacity().await;
        let status = node.status.get_or_insert_default();
        // A resource that is gone is zero, not missing: the scheduler then knows that the node manages it.
        let gone = known.removed.into_iter().map(|resource| (resource, (0, 0)));
        for (resource, (all, healthy)) in known.capacity.into_iter().chain(gone) {
            let count = |count: usize| Quantity(count.to_string());
            let capacity = status.capacity.get_or_insert_default();
            capacity.insert(resource.clone(), count(all));
            let allocatable = status.allocatable.get_or_insert_default();
            allocatable.insert(resource, count(healthy));
        }
        Ok(())
    }
}

/// The node of admission. It has at least the devices that pods have already, so that these pods fit even if their plugins are gone
/// (`sanitizeNodeAllocatable`).
pub(super) struct NodeWithDevices {
    node: Arc<dyn NodeGetter>,
    devices: DeviceManagerHandle,
}

impl NodeWithDevices {
    pub(super) fn new(node: Arc<dyn NodeGetter>, devices: DeviceManagerHandle) -> Self {
        Self { node, devices }
    }

    fn raise(&self, node: Arc<Node>) -> Arc<Node> {
        let missing = missing(&node, self.devices.allocated_counts());
        if missing.is_empty() {
            return node;
        }
        let mut raised = Arc::unwrap_or_clone(node);
        let status = raised.status.get_or_insert_default();
        let allocatable = status.allocatable.get_or_insert_default();
        for (resource, count) in missing {
            allocatable.insert(resource, Quantity(count.to_string()));
        }
        Arc::new(raised)
    }
}

/// The resources of which the node offers fewer devices than are allocated.
fn missing(node: &Node, allocated: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let offered = |resource: &str| {
        let offered = allocatable?.get(resource)?;
        Some(Amount::try_from(offered).ok()?.value())
    };
    let is_missing = |resource: &String, count: &usize| {
        offered(resource).is_none_or(|offered| usize::try_from(offered).unwrap_or_default() < *count)
    };
    let mut missing = allocated;
    missing.retain(|resource, count| is_missing(resource, count));
    missing
}

#[async_trait]
impl NodeGetter for NodeWithDevices {
    async fn node(&self) -> kubelet_core::Result<Arc<Node>> {
        Ok(self.raise(self.node.node().await?))
    }

    async fn fresh_node(&self) -> kubelet_core::Result<Arc<Node>> {
        Ok(self.raise(self.node.fresh_node().await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_at_least_what_is_allocated() {
        let node =
            serde_json::json!({"metadata": {}, "status": {"allocatable": {"a.com/x": "1", "a.com/y": "3"}}});
        let node: Node = serde_json::from_value(node).unwrap();
        let allocated = [("a.com/x", 2), ("a.com/y", 2), ("a.com/z", 1)];
        let allocated = allocated
            .map(|(resource, count)| (resource.to_owned(), count))
            .into();
        let expected = [("a.com/x".to_owned(), 2), ("a.com/z".to_owned(), 1)];
        assert_eq!(missing(&node, allocated), expected.into());
    }
}
