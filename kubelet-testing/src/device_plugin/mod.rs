//! A device plugin in memory, with faults.
//!
//! ```
//! use kubelet_testing::device_plugin::{DevicePluginFault, DevicePluginMethod, DevicePluginTrouble, MemoryDevicePlugin};
//!
//! let plugin = MemoryDevicePlugin::new("example.com/gpu").device("gpu-0", [0]).device("gpu-1", [1]);
//! plugin.set_healthy("gpu-1", false);
//! plugin.add_fault(DevicePluginFault::new(DevicePluginMethod::Allocate, DevicePluginTrouble::Hangs).times(1));
//! ```
//!
//! Give [`service`](MemoryDevicePlugin::service) to `DeviceManagerHandle::connect_in_process`, or
//! [`serve`](MemoryDevicePlugin::serve) it on a socket.

mod faults;
mod serve;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubelet_resources::devices::v1beta1::{
    ContainerAllocateResponse, ContainerPreferredAllocationRequest, Device, DevicePluginOptions, NumaNode,
    TopologyInfo,
};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::faults::{DevicePluginFault, DevicePluginTrouble};
pub use self::serve::ServedDevicePlugin;
pub use self::service::DevicePluginService;

/// A call to a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DevicePluginMethod {
    /// `GetDevicePluginOptions`
    Options,
    /// `ListAndWatch`
    ListAndWatch,
    /// `GetPreferredAllocation`
    PreferredAllocation,
    /// `Allocate`
    Allocate,
    /// `PreStartContainer`
    PreStart,
}

/// A call that a plugin got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DevicePluginCall {
    /// Which one.
    pub method: DevicePluginMethod,
    /// The devices that it is about; for `GetPreferredAllocation` those to choose from.
    pub devices: BTreeSet<String>,
}

type Respond = Arc<dyn Fn(&BTreeSet<String>) -> ContainerAllocateResponse + Send + Sync>;
type Prefer = Arc<dyn Fn(&ContainerPreferredAllocationRequest) -> Vec<String> + Send + Sync>;

/// A device plugin in memory. Cheap to clone: all clones are the same plugin.
#[derive(Clone)]
pub struct MemoryDevicePlugin {
    state: Arc<State>,
}

struct State {
    resource: String,
    devices: watch::Sender<BTreeMap<String, Device>>,
    inner: Mutex<Inner>,
    calls: watch::Sender<Vec<DevicePluginCall>>,
}

struct Inner {
    options: DevicePluginOptions,
    respond: Respond,
    prefer: Prefer,
    faults: Vec<DevicePluginFault>,
    /// Ends the plugin's streams and connections.
    dies: CancellationToken,
}

impl MemoryDevicePlugin {
    /// A plugin of this resource, without devices. It answers `Allocate` with one environment variable, `DEVICES`: the ids.
    pub fn new(resource: impl Into<String>) -> Self {
        let respond = |ids: &BTreeSet<String>| ContainerAllocateResponse {
            envs: [("DEVICES".to_owned(), Vec::from_iter(ids.clone()).join(","))].into(),
            ..ContainerAllocateResponse::default()
        };
        Self {
            state: Arc::new(State {
                resource: resource.into(),
                devices: watch::Sender::default(),
                inner: Mutex::new(Inner {
                    options: DevicePluginOptions::default(),
                    respond: Arc::new(respond),
                    prefer: Arc::new(|_| Vec::new()),
                    faults: Vec::new(),
                    dies: CancellationToken::new(),
                }),
                calls: watch::Sender::default(),
            }),
        }
    }

    /// Adds a healthy device that is close to these NUMA nodes.
    #[must_use]
    pub fn device(self, id: &str, nodes: impl IntoIterator<Item = i64>) -> Self {
        let nodes = nodes.into_iter().map(|id| NumaNode { id }).collect();
        let device = Device {
            id: id.to_owned(),
            health: "Healthy".to_owned(),
            topology: Some(TopologyInfo { nodes }),
        };
        self.change(|devices| drop(devices.insert(id.to_owned(), device)));
        self
    }

    /// The plugin wants `PreStartContainer`.
    #[must_use]
    pub fn with_pre_start(self) -> Self {
        self.state.inner.lock().options.pre_start_required = true;
        self
    }

    /// The plugin chooses devices (`GetPreferredAllocation`).
    #[must_use]
    pub fn preferring(
        self,
        prefer: impl Fn(&ContainerPreferredAllocationRequest) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        {
            let mut inner = self.state.inner.lock();
            inner.options.get_preferred_allocation_available = true;
            inner.prefer = Arc::new(prefer);
        }
        self
    }

    /// What the plugin answers to `Allocate`.
    #[must_use]
    pub fn answering(
        self,
        respond: impl Fn(&BTreeSet<String>) -> ContainerAllocateResponse + Send + Sync + 'static,
    ) -> Self {
        self.state.inner.lock().respond = Arc::new(respond);
        self
    }

    /// The resource.
    pub fn resource(&self) -> &str {
        &self.state.resource
    }

    /// Changes the health of a device, and reports it.
    pub fn set_healthy(&self, id: &str, healthy: bool) {
        let health = if healthy { "Healthy" } else { "Unhealthy" };
        self.change(|devices| {
            if let Some(device) = devices.get_mut(id) {
                health.clone_into(&mut device.health);
            }
        });
    }

    /// The ids of its devices, in order.
    #[cfg(feature = "simulation")]
    pub(crate) fn device_ids(&self) -> Vec<String> {
        self.state.devices.borrow().keys().cloned().collect()
    }

    /// Removes a device, and reports it.
    pub fn remove(&self, id: &str) {
        self.change(|devices| drop(devices.remove(id)));
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Device>)) {
        self.state.devices.send_modify(change);
    }

    /// Adds a fault. The first one that applies to a call counts.
    pub fn add_fault(&self, fault: DevicePluginFault) {
        self.state.inner.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.state.inner.lock().faults.clear();
    }

    /// All calls until now.
    pub fn calls(&self) -> Vec<DevicePluginCall> {
        self.state.calls.borrow().clone()
    }

    /// The devices of each call of this kind.
    pub fn calls_of(&self, method: DevicePluginMethod) -> Vec<BTreeSet<String>> {
        let calls = self.calls().into_iter();
        let of_method = calls.filter(|call| call.method == method);
        of_method.map(|call| call.devices).collect()
    }

    /// Waits until the plugin got so many calls of this kind in all. Cancel safe.
    pub async fn called(&self, method: DevicePluginMethod, times: usize) {
        let mut calls = self.state.calls.subscribe();
        let is_of_method = |call: &&DevicePluginCall| call.method == method;
        // The sender lives as long as the plugin.
        let _ = calls
            .wait_for(|calls| calls.iter().filter(is_of_method).count() >= times)
            .await;
    }

    /// The gRPC service of the plugin. After a crash, take a new one.
    pub fn service(&self) -> DevicePluginService {
        DevicePluginService {
            plugin: self.clone(),
            dies: self.state.inner.lock().dies.clone(),
        }
    }

    /// Breaks all connections. The plugin keeps its devices; it registers again with a new [`service`](Self::service).
    pub fn crash(&self) {
        let mut inner = self.state.inner.lock();
        std::mem::take(&mut inner.dies).cancel();
    }
}
