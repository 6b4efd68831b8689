//! The device manager, with plugins in memory.

mod admission;
mod health;
mod invariants;
mod life;
mod registration;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{Disk, PodExt, Rejection, ResourceUpdates};
use kubelet_resources::devices::{DeviceManager, DeviceManagerHandle};
use kubelet_resources::topology::TopologyPolicy;
use kubelet_resources::topology::TopologyScope;
use kubelet_resources::{ResourceManager, ResourceManagerHandle, ResourcesConfig};
use kubelet_testing::{MemoryDevicePlugin, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::manager::{MemoryStore, Pods, Runtime, admit};
use crate::pods::{config, machine, pod};

pub(crate) const GPU: &str = "example.com/gpu";

/// Four devices, two near each of two nodes.
fn four() -> MemoryDevicePlugin {
    let plugin = MemoryDevicePlugin::new(GPU);
    let plugin = plugin.device("a", [0]).device("b", [0]);
    plugin.device("c", [1]).device("d", [1])
}

fn with_gpus(name: &str, gpus: usize) -> Value {
    json!({"name": name, "resources": {"limits": {GPU: gpus.to_string()}}})
}

/// A pod with one container `c`.
fn gpu_pod(name: &str, gpus: usize) -> Arc<Pod> {
    pod(name, &[], &[with_gpus("c", gpus)])
}

fn first(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// The managers of a node, with a state file that survives them.
struct Node {
    store: Arc<MemoryStore>,
    devices: DeviceManagerHandle,
    resources: ResourceManagerHandle,
    pods: Arc<Pods>,
    shutdown: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Node {
    async fn start() -> Self {
        Self::start_with(Arc::default(), &[]).await
    }

    async fn start_with(store: Arc<MemoryStore>, running: &[(&str, &str)]) -> Self {
        let config = config(TopologyPolicy::None, TopologyScope::Container);
        Self::start_as(store, running, config).await
    }

    /// Reports the pods whose devices changed their health there.
    async fn start_reporting(updates: ResourceUpdates) -> Self {
        let config = config(TopologyPolicy::None, TopologyScope::Container);
        Self::start_all(Arc::default(), &[], config, updates).await
    }

    async fn start_as(store: Arc<MemoryStore>, running: &[(&str, &str)], config: ResourcesConfig) -> Self {
        Self::start_all(store, running, config, ResourceUpdates::new()).await
    }

    async fn start_all(
        store: Arc<MemoryStore>,
        running: &[(&str, &str)],
        config: ResourcesConfig,
        updates: ResourceUpdates,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let running = running
            .iter()
            .map(|(uid, name)| ((*uid).to_owned(), (*name).to_owned()));
        let devices = DeviceManager::builder(folder.path(), store.clone())
            .disk(Disk::inline())
            .running(running)
            .updates(updates)
            .start(&machine(2, 4, 1, 1))
            .await;
        let resources = ResourceManager::builder(store.clone(), Arc::new(Runtime::default()))
            .disk(Disk::inline())
            .plugins(Arc::new(devices.handle()))
            .start(&machine(2, 4, 1, 1), &config)
            .await
            .unwrap();
        let (pods, shutdown) = (Pods::ready(&[]), CancellationToken::new());
        let (devices_handle, resources_handle) = (devices.handle(), resources.handle());
        let tasks = vec![
            tokio::spawn(devices.run(pods.clone() as _, shutdown.clone())),
            tokio::spawn(resources.run(pods.clone() as _, shutdown.clone())),
        ];
        // Both have their pods.
        tokio::task::yield_now().await;
        Self {
            store,
            devices: devices_handle,
            resources: resources_handle,
            pods,
            shutdown,
            tasks,
            _folder: folder,
        }
    }

    /// Registers the plugin, and waits for its first report.
    async fn register(&self, plugin: &MemoryDevicePlugin) {
        let connected = self
            .devices
            .connect_in_process(plugin.resource(), plugin.service());
        connected.await.unwrap();
        let healthy = || self.devices.allocatable_devices().remove(plugin.resource());
        eventually!(healthy(), |devices| devices
            .as_ref()
            .is_some_and(|devices| !devices.is_empty()));
    }

    /// Admits the pod, which is then active.
    async fn admit(&self, pod: &Arc<Pod>) -> Result<(), Rejection> {
        admit(&self.resources, pod).await?;
        self.pods.add(pod);
        Ok(())
    }

    /// The devices of the pod's containers.
    fn devices_of(&self, pod: &Pod) -> BTreeSet<String> {
        let allocated = self.devices.allocated();
        let containers = allocated.get(pod.uid_str()).into_iter().flatten();
        let devices = containers.flat_map(|(_, resources)| resources.values());
        devices.flat_map(|devices| devices.ids()).collect()
    }

    async fn stop(self) -> Arc<MemoryStore> {
        self.shutdown.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
        self.store
    }
}
