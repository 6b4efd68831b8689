//! The engine: device plugins register, report their devices, and are called when a container gets some.

mod additions;
mod allocate;
mod connections;
mod endpoint;
mod file;
mod metrics;
mod register;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{Disk, ResourceHealth, ResourceUpdates};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::endpoint::Endpoint;
use self::file::StateFile;
use super::{Device, DeviceState, DevicesOfPods};
use crate::checkpoint::StateStore;
use crate::grpc;
use crate::machine::Machine;
use crate::manager::NodePods;
use crate::numa_set::NumaSet;
use crate::topology::TopologyHint;
use crate::{Error, Result};

/// The socket on which plugins register, in the folder of their sockets (`KubeletSocket`).
pub const KUBELET_SOCKET: &str = "kubelet.sock";

/// How long the node still offers the devices of a plugin that is gone (`endpointStopGracePeriod`).
pub const STOP_GRACE_PERIOD: Duration = Duration::from_secs(5 * 60);

/// How long a plugin may take for `Allocate`, `GetPreferredAllocation` and `GetDevicePluginOptions`, by default. The kubelet waits
/// without end.
pub const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Registers device plugins, keeps their devices and allocates these to containers (`devicemanager.ManagerImpl`).
///
/// [`start`](DeviceManagerBuilder::start) reads what the agent before allocated. [`run`](Self::run) serves the socket on which plugins
/// register. Plugins that appear in the folder of the plugin watcher register through the [`handle`](Self::handle), which is a
/// [`PluginHandler`](kubelet_plugins::PluginHandler) for [`DEVICE_PLUGIN`](kubelet_plugins::DEVICE_PLUGIN). Give the handle to
/// [`ResourceManagerBuilder::plugins`](crate::ResourceManagerBuilder::plugins): then admission allocates devices.
pub struct DeviceManager {
    shared: Arc<Shared>,
    registration_socket: bool,
}

/// The device manager for the other parts of the node. Cheap to clone.
#[derive(Clone)]
pub struct DeviceManagerHandle {
    shared: Arc<Shared>,
}

/// Makes a [`DeviceManager`].
pub struct DeviceManagerBuilder {
    folder: PathBuf,
    store: Arc<dyn StateStore>,
    disk: Disk,
    call_timeout: Duration,
    running: BTreeSet<(String, String)>,
    extended_resource_claims: bool,
    updates: Option<ResourceUpdates>,
    registration_socket: bool,
}

struct Shared {
    /// The folder of the plugins' sockets.
    folder: PathBuf,
    /// Never locked while a plugin is called.
    inner: Mutex<Inner>,
    /// Who holds it may allocate. It guards no data, so it may be held while plugins answer.
    turn: AsyncMutex<()>,
    file: StateFile,
    call_timeout: Duration,
    /// The containers that ran when the agent started: the pod's UID and the container's name.
    running: BTreeSet<(String, String)>,
    extended_resource_claims: bool,
    /// Gets the pods whose devices changed their health.
    updates: Option<ResourceUpdates>,
    /// Set when the manager runs, which keeps them. The pods' agent has the handle of this manager, so that an [`Arc`] would be a cycle.
    pods: OnceLock<Weak<dyn NodePods>>,
    /// A task for each connection, joined by `run`.
    connections: TaskTracker,
    stop: CancellationToken,
    /// Ends the connections when the manager and its handles are gone.
    _stop_at_last: DropGuard,
    /// Why nobody can register, if so.
    failure: Mutex<Option<String>>,
}

#[derive(Default)]
struct Inner {
    state: DeviceState,
    /// By resource.
    endpoints: BTreeMap<String, Endpoint>,
    /// The merged hints of containers, by the pod's UID and the container's name: for devices that are allocated later.
    hints: BTreeMap<String, BTreeMap<String, TopologyHint>>,
    /// The pod whose admission is under way.
    admitting: Option<Arc<Pod>>,
    /// The number of the last connection.
    connections: u64,
}

impl DeviceManager {
    /// A manager of the plugins with sockets in `folder`, usually `/var/lib/kubelet/device-plugins`, with its state file in `store`,
    /// for the kubelet a [`StateFolder`](crate::checkpoint::StateFolder) of the same folder.
    pub fn builder(folder: impl Into<PathBuf>, store: Arc<dyn StateStore>) -> DeviceManagerBuilder {
        DeviceManagerBuilder {
            folder: folder.into(),
            store,
            disk: Disk::default(),
            call_timeout: DEFAULT_CALL_TIMEOUT,
            running: BTreeSet::new(),
            extended_resource_claims: true,
            updates: None,
            registration_socket: true,
        }
    }

    /// The handle.
    pub fn handle(&self) -> DeviceManagerHandle {
        DeviceManagerHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Serves registration until `shutdown`. First removes the sockets of the agent before from the folder: plugins see this, and
    /// register again.
    ///
    /// If the socket cannot be made, plugins of the plugin watcher still work; [`DeviceManagerHandle::check`] reports it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the tasks of the connections running until the handles are gone. Cancel `shutdown` instead.
    pub async fn run(self, pods: Arc<dyn NodePods>, shutdown: CancellationToken) {
        // Nobody else sets it: `run` takes the manager.
        let _ = self.shared.pods.set(Arc::downgrade(&pods));
        if !self.registration_socket {
            shutdown.cancelled().await;
            return self.disconnect().await;
        }
        let socket = self.shared.folder.join(KUBELET_SOCKET);
        match self.prepare(&socket).await {
            Ok(listener) => {
                tracing::info!(socket = %socket.display(), "starting device plugin registration server");
                grpc::serve(listener, self.handle().registration(), shutdown.clone()).await;
            }
            Err(error) => {
                tracing::error!(socket = %socket.display(), %error, "no device plugin can register");
                let text = "device registration error: device plugin registration gRPC server failed and no device plugins can \
                            register";
                *self.shared.failure.lock() = Some(format!("{text}: {error}"));
                shutdown.cancelled().await;
            }
        }
        self.disconnect().await;
    }

    async fn disconnect(&self) {
        self.shared.stop.cancel();
        self.shared.connections.close();
        self.shared.connections.wait().await;
    }

    /// Makes the folder and the socket, and removes other sockets (`CleanupPluginDirectory`).
    async fn prepare(&self, socket: &Path) -> std::io::Result<tokio::net::UnixListener> {
        let folder = self.shared.folder.clone();
        let work = move || {
            file::make(&folder)?;
            file::remove_sockets(&folder)
        };
        self.shared.file.disk.run(work).await?;
        grpc::listen(socket)
    }
}

impl DeviceManagerBuilder {
    /// Which thread reads and writes files.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// How long a plugin may take for `Allocate`, `GetPreferredAllocation` and `GetDevicePluginOptions`. By default 2 min.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// The containers that run already: the UIDs of their pods and their names. Until all sources have reported their pods,
    /// these have their devices, even if their plugins have not come back.
    #[must_use]
    pub fn running(mut self, containers: impl IntoIterator<Item = (String, String)>) -> Self {
        self.running = containers.into_iter().collect();
        self
    }

    /// Whether a claim may serve extended resources (`DRAExtendedResource`). No plugin is then called for the resources that the
    /// scheduler made a claim for. By default, it may.
    #[must_use]
    pub fn extended_resource_claims(mut self, enabled: bool) -> Self {
        self.extended_resource_claims = enabled;
        self
    }

    /// Where to report the pods with a device whose health changed. The [handle](DeviceManager::handle) then also goes to
    /// [`KubeletBuilder::resource_health`](kubelet_core::KubeletBuilder::resource_health). By default, nobody is informed.
    #[must_use]
    pub fn updates(mut self, updates: ResourceUpdates) -> Self {
        self.updates = Some(updates);
        self
    }

    /// Whether plugins can register at the socket [`KUBELET_SOCKET`]. By default they can. Without it they register through the plugin
    /// watcher, or are in this process: then the manager works without sockets, also in virtual time.
    #[must_use]
    pub fn registration_socket(mut self, enabled: bool) -> Self {
        self.registration_socket = enabled;
        self
    }

    /// Takes over the state of the agent before. A file that cannot be used is logged and ignored, as the kubelet does.
    pub async fn start(self, machine: &Machine) -> DeviceManager {
        let nodes = machine.nodes.iter().map(|node| node.id);
        let nodes = NumaSet::of(nodes.filter(|id| *id < NumaSet::MAX_NODES));
        let file = StateFile::new(self.store, self.disk);
        let mut inner = Inner {
            state: DeviceState::new(nodes.unwrap_or_default()),
            ..Inner::default()
        };
        match file.read().await {
            Ok(Some((allocated, registered))) => inner.take_over(allocated, registered),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "continue after failing to read checkpoint file, device allocation info may not be up to date");
            }
        }
        let stop = CancellationToken::new();
        DeviceManager {
            registration_socket: self.registration_socket,
            shared: Arc::new(Shared {
                folder: self.folder,
                inner: Mutex::new(inner),
                turn: AsyncMutex::default(),
                file,
                call_timeout: self.call_timeout,
                running: self.running,
                extended_resource_claims: self.extended_resource_claims,
                updates: self.updates,
                pods: OnceLock::new(),
                connections: TaskTracker::new(),
                _stop_at_last: stop.clone().drop_guard(),
                stop,
                failure: Mutex::default(),
            }),
        }
    }
}

impl DeviceManagerHandle {
    /// The number of devices and of healthy devices of each resource, for the node's capacity and allocatable, and the resources that
    /// the node offers no more (`GetCapacity`): each of these is returned once.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the resources that it would return are lost. Nothing else depends on them.
    pub async fn capacity(&self) -> DeviceCapacity {
        let (capacity, removed) = {
            let mut inner = self.shared.inner.lock();
            let removed = inner.forget_expired();
            (inner.state.capacity(), removed)
        };
        if !removed.is_empty() {
            self.shared.write_state().await;
        }
        DeviceCapacity { capacity, removed }
    }

    /// The healthy devices by resource and id (`GetAllocatableDevices`).
    pub fn allocatable_devices(&self) -> BTreeMap<String, BTreeMap<String, Device>> {
        self.shared.inner.lock().state.healthy_devices()
    }

    /// How many devices of each resource are allocated.
    pub fn allocated_counts(&self) -> BTreeMap<String, usize> {
        self.shared.inner.lock().state.allocated_counts()
    }

    /// A copy of what was allocated.
    pub fn allocated(&self) -> DevicesOfPods {
        self.shared.inner.lock().state.allocated().clone()
    }

    /// Whether the state file was there when the agent started. If not, the node may have been recreated, and the extended
    /// resources that its object has are to be set to zero (`ShouldResetExtendedResourceCapacity`).
    pub fn had_state(&self) -> bool {
        self.shared.file.was_there()
    }

    /// The check `device-plugin` of `/healthz`.
    ///
    /// # Errors
    ///
    /// The kubelet's text, if plugins cannot register.
    pub fn check(&self) -> Result<(), String> {
        match &*self.shared.failure.lock() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }
}

impl ResourceHealth for DeviceManagerHandle {
    fn update_allocated_resources_status(&self, pod: &Pod, status: &mut PodStatus) {
        let inner = self.shared.inner.lock();
        inner.state.update_allocated_resources_status(pod, status);
    }
}

/// How many devices a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCapacity {
    /// The number of devices and of healthy devices, by resource.
    pub capacity: BTreeMap<String, (usize, usize)>,
    /// The resources whose plugins have been gone for more than [`STOP_GRACE_PERIOD`].
    pub removed: Vec<String>,
}

impl Inner {
    fn take_over(&mut self, allocated: DevicesOfPods, registered: Vec<String>) {
        for resource in &registered {
            self.endpoints.insert(resource.clone(), Endpoint::stopped());
        }
        self.state = std::mem::take(&mut self.state).with_allocated(allocated, registered);
    }

    fn forget_expired(&mut self) -> Vec<String> {
        let endpoints = &self.endpoints;
        let is_gone = |resource: &str| endpoints.get(resource).is_none_or(Endpoint::is_expired);
        let registered = self.state.registered().map(str::to_owned);
        let gone: Vec<String> = registered.filter(|resource| is_gone(resource)).collect();
        for resource in &gone {
            self.state.forget(resource);
            self.endpoints.remove(resource);
        }
        gone
    }
}

impl Shared {
    /// The pods of the node, while the manager runs.
    fn pods(&self) -> Option<Arc<dyn NodePods>> {
        self.pods.get().and_then(Weak::upgrade)
    }

    fn sources_ready(&self) -> bool {
        self.pods().is_some_and(|pods| pods.sources_ready())
    }

    async fn write_state(&self) {
        if let Err(error) = self.file.write(&self.inner).await {
            tracing::error!(%error, "failed to write the checkpoint file of devices, it is tried again with the next change");
        }
    }

    /// An error with the kubelet's text.
    fn failed(text: impl Into<String>) -> Error {
        Error::Allocation(text.into())
    }
}
