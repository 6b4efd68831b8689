//! Devices in the node's status, and in the node that admission sees.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::NodeGetter;
use kubelet_core::quantity::Amount;
use kubelet_node::NodeStatusSetter;
use kubelet_resources::devices::DeviceManagerHandle;
use parking_lot::Mutex;

/// Sets capacity and allocatable of the resources of device plugins (the part of `nodestatus.MachineInfo` about them).
pub(super) struct InStatus {
    devices: DeviceManagerHandle,
    /// The resources that the node offers no more. They are written each time, because an update of the node may fail.
    gone: Mutex<BTreeSet<String>>,
}

impl InStatus {
    pub(super) fn new(devices: DeviceManagerHandle) -> Self {
        Self {
            devices,
            gone: Mutex::default(),
        }
    }
}

#[async_trait]
impl NodeStatusSetter for InStatus {
    fn name(&self) -> &str {
        "devices"
    }

    async fn set(&self, node: &mut Node) -> kubelet_node::Result<()> {
        let known = self.devices.capacity().await;
        let gone = {
            let mut gone = self.gone.lock();
            gone.extend(known.removed);
            gone.retain(|resource| !known.capacity.contains_key(resource));
            gone.clone()
        };
        let status = node.status.get_or_insert_default();
        // A resource that is gone is zero, not missing: the scheduler then knows that the node manages it.
        let gone = gone.into_iter().map(|resource| (resource, (0, 0)));
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

    async fn registered(&self) {
        self.node.registered().await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use kubelet_core::Disk;
    use kubelet_resources::Machine;
    use kubelet_resources::checkpoint::StateFolder;
    use kubelet_resources::devices::{DeviceManager, STOP_GRACE_PERIOD};
    use kubelet_testing::{MemoryDevicePlugin, eventually};
    use tokio::sync::Notify;

    use super::*;

    /// A node that is there before it is registered.
    #[derive(Default)]
    struct Unregistered(Notify);

    #[async_trait]
    impl NodeGetter for Unregistered {
        async fn node(&self) -> kubelet_core::Result<Arc<Node>> {
            Ok(Arc::default())
        }

        async fn registered(&self) {
            self.0.notified().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_registered_when_the_node_is() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(StateFolder::new(folder.path()));
        let manager = DeviceManager::builder(folder.path(), store).disk(Disk::inline());
        let devices = manager.start(&Machine::default()).await.handle();
        let node = Arc::new(Unregistered::default());
        let with_devices = NodeWithDevices::new(node.clone(), devices);
        let mut registered = pin!(with_devices.registered());
        assert!(futures::poll!(registered.as_mut()).is_pending());
        node.0.notify_one();
        registered.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_resource_that_is_gone_is_zero_in_each_update() {
        const RESOURCE: &str = "a.com/x";
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(StateFolder::new(folder.path()));
        let manager = DeviceManager::builder(folder.path(), store).disk(Disk::inline());
        let devices = manager.start(&Machine::default()).await.handle();
        let setter = InStatus::new(devices.clone());
        let healthy = || devices.allocatable_devices().get(RESOURCE).map(BTreeMap::len);
        let offered = async || {
            let mut node = Node::default();
            setter.set(&mut node).await.unwrap();
            let capacity = node.status.unwrap_or_default().capacity.unwrap_or_default();
            capacity.get(RESOURCE).map(|count| count.0.clone())
        };
        let plugin = MemoryDevicePlugin::new(RESOURCE).device("1", []);
        let connected = devices.connect_in_process(RESOURCE, plugin.service()).await;
        connected.unwrap();
        eventually!(healthy(), |healthy| *healthy == Some(1));
        plugin.crash();
        eventually!(healthy(), |healthy| *healthy == Some(0));
        assert_eq!(offered().await.as_deref(), Some("1"));
        tokio::time::advance(STOP_GRACE_PERIOD + Duration::from_secs(1)).await;
        for _ in 0..2 {
            assert_eq!(offered().await.as_deref(), Some("0"));
        }
    }

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
