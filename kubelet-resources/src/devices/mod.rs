//! Devices of device plugins: which ones there are, which ones containers have, and which ones a container gets.
//!
//! [`DeviceState`] decides without I/O. `DeviceManager` (feature `plugins`) is the engine around it: plugins register, report
//! their devices, and are called when a container gets some. Answers to `pkg/kubelet/cm/devicemanager`.

mod checkpoint;
mod choice;
mod health;
mod hints;
#[cfg(feature = "plugins")]
mod manager;
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub mod v1beta1;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;

pub use self::checkpoint::{read_device_state, write_device_state};
pub use self::choice::{Choice, PreferenceRequest};
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub use self::manager::{
    DEFAULT_CALL_TIMEOUT, DeviceCapacity, DeviceManager, DeviceManagerBuilder, DeviceManagerHandle,
    KUBELET_SOCKET, STOP_GRACE_PERIOD,
};
use crate::numa_set::NumaSet;
use crate::requests::{ends_before_next, limit_of};

/// The file of the devices' state in the folder of the plugins' sockets (`kubeletDeviceManagerCheckpoint`).
pub const DEVICE_MANAGER_STATE: &str = "kubelet_internal_checkpoint";

/// A device as its plugin reports it (`pluginapi.Device`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Whether it can be allocated.
    pub healthy: bool,
    /// The NUMA nodes that it is close to. `None`: its plugin does not know.
    pub nodes: Option<Vec<i64>>,
}

/// The devices of one container and resource (`deviceAllocateInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedDevices {
    /// The ids by NUMA node. A device without node is under −1, one with several nodes is under each.
    pub by_node: BTreeMap<i64, Vec<String>>,
    /// What the plugin answered: a `ContainerAllocateResponse` in protobuf.
    pub response: Vec<u8>,
}

/// The key of devices without NUMA node (`nodeWithoutTopology`).
pub const NODE_WITHOUT_TOPOLOGY: i64 = -1;

impl AllocatedDevices {
    /// The ids.
    pub fn ids(&self) -> BTreeSet<String> {
        self.by_node.values().flatten().cloned().collect()
    }
}

/// By the pod's UID, the container's name and the resource.
pub type DevicesOfPods = BTreeMap<String, BTreeMap<String, BTreeMap<String, AllocatedDevices>>>;

/// The devices of a node and what was allocated of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// The NUMA nodes of the machine.
    nodes: NumaSet,
    /// The devices by resource and id. A resource without devices was registered before, and its plugin has not come back.
    resources: BTreeMap<String, BTreeMap<String, Device>>,
    /// The resources whose plugins went before they reported. They cannot be allocated, and no file keeps them.
    unreported: BTreeSet<String>,
    /// Whether each device was healthy in the last report of its plugin, by resource and id. The reports stay when plugins go
    /// (`allDevices`).
    reported: BTreeMap<String, BTreeMap<String, bool>>,
    pods: DevicesOfPods,
    /// The devices that the next containers of the pod that was admitted last may get again.
    reusable: (String, BTreeMap<String, BTreeSet<String>>),
}

impl DeviceState {
    /// No devices, on a machine with these NUMA nodes.
    pub fn new(nodes: NumaSet) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }

    /// The same with what an agent before allocated: see [`read_device_state`]. Its resources have no devices until their plugins
    /// report them again.
    #[must_use]
    pub fn with_allocated(
        mut self,
        pods: DevicesOfPods,
        registered: impl IntoIterator<Item = String>,
    ) -> Self {
        self.pods = pods;
        for resource in registered {
            self.resources.entry(resource).or_default();
        }
        self
    }

    /// A plugin reports all its devices (`genericDeviceUpdateCallback`). Returns the UIDs of the pods with a device whose health
    /// changed.
    pub fn report(&mut self, resource: &str, devices: BTreeMap<String, Device>) -> BTreeSet<String> {
        let pods = self.note_health(resource, &devices);
        self.resources.insert(resource.to_owned(), devices);
        self.unreported.remove(resource);
        pods
    }

    /// A plugin is gone: its devices are unhealthy until it reports again (`markResourceUnhealthy`). The node shows the resource of
    /// one that never reported, too, and has none of it.
    pub fn plugin_gone(&mut self, resource: &str) {
        match self.resources.get_mut(resource) {
            Some(devices) => devices.values_mut().for_each(|device| device.healthy = false),
            None => {
                self.unreported.insert(resource.to_owned());
            }
        }
    }

    /// A plugin has been gone for so long that the node does not offer its resource any more (`GetCapacity`: five minutes).
    pub fn forget(&mut self, resource: &str) {
        self.resources.remove(resource);
        self.unreported.remove(resource);
    }

    /// The number of devices and of healthy devices, by resource: for the node's capacity and allocatable.
    pub fn capacity(&self) -> BTreeMap<String, (usize, usize)> {
        let counts = |devices: &BTreeMap<String, Device>| {
            let healthy = devices.values().filter(|device| device.healthy);
            (devices.len(), healthy.count())
        };
        let resources = self.resources.iter();
        let reported = resources.map(|(resource, devices)| (resource.clone(), counts(devices)));
        let unreported = self.unreported.iter().map(|resource| (resource.clone(), (0, 0)));
        unreported.chain(reported).collect()
    }

    /// What was allocated.
    pub fn allocated(&self) -> &DevicesOfPods {
        &self.pods
    }

    /// How many devices of each resource are allocated. One that an init container left to the next one counts once.
    pub fn allocated_counts(&self) -> BTreeMap<String, usize> {
        let mut ids: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
        for resources in self.pods.values().flat_map(BTreeMap::values) {
            for (resource, devices) in resources {
                let of_resource = ids.entry(resource).or_default();
                of_resource.extend(devices.by_node.values().flatten());
            }
        }
        let counts = ids.into_iter();
        counts
            .map(|(resource, ids)| (resource.clone(), ids.len()))
            .collect()
    }

    /// The resources that plugins have registered.
    pub fn registered(&self) -> impl Iterator<Item = &str> {
        self.resources.keys().map(String::as_str)
    }

    /// The devices that the container needs, by resource.
    pub fn requests(&self, container: &Container) -> BTreeMap<String, usize> {
        let limits = container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref());
        let names = limits.into_iter().flat_map(BTreeMap::keys);
        names
            .filter(|name| self.is_device(name))
            .map(|name| (name.clone(), limit_of(container, name)))
            .collect()
    }

    /// Notes that the container has these devices, with the answer of their plugin to `Allocate`.
    pub fn allocate(
        &mut self,
        pod_uid: &str,
        container: &str,
        resource: &str,
        ids: &BTreeSet<String>,
        response: Vec<u8>,
    ) {
        let mut by_node: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for id in ids {
            let nodes = self.nodes_of(resource, id);
            match nodes.is_empty() {
                true => by_node.entry(NODE_WITHOUT_TOPOLOGY).or_default().push(id.clone()),
                false => {
                    for node in nodes {
                        by_node.entry(*node).or_default().push(id.clone());
                    }
                }
            }
        }
        let of_pod = self.pods.entry(pod_uid.to_owned()).or_default();
        let of_container = of_pod.entry(container.to_owned()).or_default();
        of_container.insert(resource.to_owned(), AllocatedDevices { by_node, response });
    }

    /// All devices of the container were allocated. If it ends before the next one starts, that one may get its devices.
    pub fn container_done(&mut self, pod: &Pod, container: &Container) {
        let uid = pod.uid_str();
        if self.reusable.0 != uid {
            self.reusable = (uid.to_owned(), BTreeMap::new());
        }
        let ends = ends_before_next(pod, container);
        let of_container = self.pods.get(uid).and_then(|of_pod| of_pod.get(&container.name));
        for (resource, devices) in of_container.into_iter().flatten() {
            let reusable = self.reusable.1.entry(resource.clone()).or_default();
            for id in devices.ids() {
                match ends {
                    true => reusable.insert(id),
                    false => reusable.remove(&id),
                };
            }
        }
    }

    /// Frees what pods have that are not among these (`UpdateAllocatedDevices`). Returns whether something changed.
    pub fn remove_stale(&mut self, active: &[Arc<Pod>]) -> bool {
        let before = self.pods.len();
        let active: HashSet<&str> = active.iter().map(|pod| pod.uid_str()).collect();
        self.pods.retain(|uid, _| active.contains(uid.as_str()));
        self.pods.len() < before
    }

    /// Whether a plugin offers this resource, or offered it when some of it was allocated (`isDevicePluginResource`).
    fn is_device(&self, resource: &str) -> bool {
        let mut containers = self.pods.values().flat_map(BTreeMap::values);
        self.resources.contains_key(resource)
            || containers.any(|of_container| of_container.contains_key(resource))
    }

    /// The devices that the container has, if any.
    fn of_container(&self, pod_uid: &str, container: &str, resource: &str) -> Option<BTreeSet<String>> {
        let devices = self.pods.get(pod_uid)?.get(container)?.get(resource)?;
        Some(devices.ids())
    }

    fn of_pod(&self, pod_uid: &str, resource: &str) -> BTreeSet<String> {
        let containers = self.pods.get(pod_uid).into_iter().flat_map(BTreeMap::values);
        let devices = containers.filter_map(|of_container| of_container.get(resource));
        devices.flat_map(AllocatedDevices::ids).collect()
    }

    /// The healthy devices by resource and id.
    pub fn healthy_devices(&self) -> BTreeMap<String, BTreeMap<String, Device>> {
        let healthy = |devices: &BTreeMap<String, Device>| {
            let devices = devices.iter().filter(|(_, device)| device.healthy);
            devices.map(|(id, device)| (id.clone(), device.clone())).collect()
        };
        let resources = self.resources.iter();
        resources
            .map(|(resource, devices)| (resource.clone(), healthy(devices)))
            .collect()
    }

    fn healthy(&self, resource: &str) -> BTreeSet<String> {
        let devices = self.resources.get(resource).into_iter().flatten();
        devices
            .filter(|(_, device)| device.healthy)
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The healthy devices that no container has.
    fn available(&self, resource: &str) -> BTreeSet<String> {
        let mut available = self.healthy(resource);
        for containers in self.pods.values() {
            for devices in containers
                .values()
                .filter_map(|of_container| of_container.get(resource))
            {
                for id in devices.by_node.values().flatten() {
                    available.remove(id);
                }
            }
        }
        available
    }

    fn reusable(&self, pod_uid: &str, resource: &str) -> BTreeSet<String> {
        let (uid, devices) = &self.reusable;
        let of_pod = devices.get(resource).filter(|_| uid == pod_uid);
        of_pod.cloned().unwrap_or_default()
    }

    fn nodes_of(&self, resource: &str, id: &str) -> &[i64] {
        let device = self.resources.get(resource).and_then(|devices| devices.get(id));
        device
            .and_then(|device| device.nodes.as_deref())
            .unwrap_or_default()
    }

    /// Whether any device of the resource is close to a node.
    fn has_topology(&self, resource: &str) -> bool {
        let devices = self
            .resources
            .get(resource)
            .into_iter()
            .flat_map(BTreeMap::values);
        devices
            .filter_map(|device| device.nodes.as_ref())
            .any(|nodes| !nodes.is_empty())
    }
}
