//! The node as the agent knows it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, EventType, LogEvents, NoPressure, NodeEventRecorder};
use metrics::gauge;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::facts::NoRuntime;
use crate::setters::LastAnswer;
use crate::setters::addresses::{ADDRESSES, Addresses};
use crate::setters::condition::{PressureCondition, PressureOf};
use crate::setters::info::{DeclaredFeatures, Endpoints, Versions};
use crate::setters::machine::Machine;
use crate::setters::ready::{READY, Ready};
use crate::setters::runtime::{Handlers, Images};
use crate::setters::schedulable::Schedulable;
use crate::setters::volumes::Volumes;
use crate::startup_latency::StartupLatency;
use crate::{
    HostNetwork, MachineInfo, NodeRuntime, NodeStatusSetter, Pressure, ReadyCheck, Reservation, Result,
    SystemNetwork, VolumesInUse,
};

/// The annotation that lets the attach-detach controller attach the node's volumes
/// (`ControllerManagedAttachAnnotation`).
pub(crate) const CONTROLLER_MANAGED_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The taint of a node that its cloud provider has not initialised yet (`TaintExternalCloudProvider`).
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The message about version 1 of cgroups (`CgroupV1DeprecatedWarning`).
const CGROUP_V1_DEPRECATED: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future \
    release. Please migrate to cgroup v2. More information at \
    https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";
const TMPFS_MAY_BE_SWAPPED: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, \
    emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";
/// How long a stand-in node is reused.
const STAND_IN_FOR: Duration = Duration::from_secs(10);

/// The settings of a node, named after the kubelet's flags and configuration fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeConfig {
    /// The name of the Node object.
    pub node_name: String,
    /// The address of type `Hostname` and the label. It is the node's name, unless a cloud provider gave the
    /// node another name. See [`hostname`](crate::hostname()).
    pub hostname: String,
    /// `--node-ip`, see [`parse_node_ip`](crate::parse_node_ip). If empty, the address is detected.
    pub node_ips: Vec<IpAddr>,
    /// `--cloud-provider=external`: an external cloud provider initialises the node.
    pub external_cloud_provider: bool,
    /// `--node-labels`
    pub node_labels: BTreeMap<String, String>,
    /// `registerWithTaints`
    pub register_with_taints: Vec<Taint>,
    /// `providerID`
    pub provider_id: Option<String>,
    /// `enableControllerAttachDetach`, true by default.
    pub enable_controller_attach_detach: bool,
    /// Sets extended resources to zero at registration, until a device plugin reports them again: the machine
    /// may be a new one (`ShouldResetExtendedResourceCapacity`). True by default, as in a kubelet without the
    /// checkpoint `device-plugins/kubelet_internal_checkpoint`. Set it to false if that file exists.
    pub reset_extended_resources: bool,
    /// `maxPods`, 110 by default.
    pub max_pods: u32,
    /// `podsPerCore`; 0, the default, means no limit.
    pub pods_per_core: u32,
    /// `systemReserved`, `kubeReserved` and `evictionHard`.
    pub reservation: Reservation,
    /// `localStorageCapacityIsolation`, true by default: the node reports `ephemeral-storage`, and is not ready
    /// before it can.
    pub local_storage_capacity_isolation: bool,
    /// `nodeStatusMaxImages`, 50 by default; `None`, the kubelet's -1, reports all images.
    pub node_status_max_images: Option<usize>,
    /// The reported version, `v1.36.2` by default. This crate behaves like that version.
    pub kubelet_version: String,
    /// `port`, 10250 by default.
    pub kubelet_port: u16,
    /// Features that the scheduler may rely on, sorted. Empty by default: declare what your agent supports.
    pub declared_features: Vec<String>,
}

impl NodeConfig {
    /// The settings of the node `node_name`, with the kubelet's defaults.
    pub fn new(node_name: impl Into<String>) -> Self {
        let node_name = node_name.into();
        Self {
            hostname: node_name.clone(),
            node_name,
            node_ips: Vec::new(),
            external_cloud_provider: false,
            node_labels: BTreeMap::new(),
            register_with_taints: Vec::new(),
            provider_id: None,
            enable_controller_attach_detach: true,
            reset_extended_resources: true,
            max_pods: 110,
            pods_per_core: 0,
            reservation: Reservation::of_defaults(),
            local_storage_capacity_isolation: true,
            node_status_max_images: Some(50),
            kubelet_version: "v1.36.2".to_owned(),
            kubelet_port: 10250,
            declared_features: Vec::new(),
        }
    }
}

/// The node as the agent knows it: the object to register, and its current status. Answers to the kubelet's
/// `initialNode` and `setNodeStatus`.
///
/// ```
/// use kubelet_node::{FixedNetwork, LocalNode, MachineInfo, NodeConfig};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> kubelet_node::Result<()> {
/// let mut config = NodeConfig::new("node-1");
/// config.node_labels.insert("example.com/rack".into(), "7".into());
/// let machine = MachineInfo::new(2, 4 << 30); // or MachineInfo::read(root_dir)?
/// let network = FixedNetwork::new([[10, 0, 0, 7].into()]);
/// let node = LocalNode::builder(config, machine).network(network).build().initial_node().await;
/// let status = node.status.unwrap_or_default();
/// assert_eq!(status.capacity.unwrap_or_default()["memory"].0, "4Gi");
/// # Ok(())
/// # }
/// ```
pub struct LocalNode {
    config: NodeConfig,
    machine: Arc<MachineInfo>,
    setters: Vec<Arc<dyn NodeStatusSetter>>,
    checks: Arc<[Arc<dyn ReadyCheck>]>,
    runtime: Arc<dyn NodeRuntime>,
    volumes: Option<Arc<dyn VolumesInUse>>,
    events: Arc<dyn NodeEventRecorder>,
    clock: Clock,
    startup: Mutex<StartupLatency>,
    stand_in: Mutex<Option<(Instant, Arc<Node>)>>,
    /// The conditions of the initial node but `Ready`, as it was made last.
    pressures: Mutex<Vec<NodeCondition>>,
}

impl LocalNode {
    /// Starts a builder with these settings, for this machine.
    pub fn builder(config: NodeConfig, machine: MachineInfo) -> LocalNodeBuilder {
        LocalNodeBuilder {
            config,
            machine: Arc::new(machine),
            network: Arc::new(SystemNetwork),
            runtime: Arc::new(NoRuntime),
            checks: Vec::new(),
            pressure: Arc::new(NoPressure),
            volumes: None,
            setters: Vec::new(),
            events: Arc::new(LogEvents),
            clock: Clock::system(),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.config.node_name
    }

    pub(crate) fn runtime(&self) -> &dyn NodeRuntime {
        &*self.runtime
    }

    /// The object to register, with its current status (`initialNode`).
    ///
    /// The first call emits the events of its conditions, e.g. `NodeHasSufficientMemory`. A later one emits those of conditions that
    /// have changed since.
    pub async fn initial_node(&self) -> Node {
        let mut node = self.bare_node();
        let known = self.pressures.lock().clone();
        node.status.get_or_insert_default().conditions = Some(known).filter(|known| !known.is_empty());
        self.set_status(&mut node).await;
        let conditions = node
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        // The node that is not ready when it registers is ready later: the API server has seen that.
        let pressures = conditions.filter(|condition| condition.type_ != READY);
        *self.pressures.lock() = pressures.cloned().collect();
        node
    }

    /// The object to register, without its status.
    pub(crate) fn bare_node(&self) -> Node {
        let config = &self.config;
        let machine = &self.machine;
        let mut labels: BTreeMap<String, String> = [
            ("kubernetes.io/hostname", &config.hostname),
            ("kubernetes.io/os", &machine.operating_system),
            ("kubernetes.io/arch", &machine.architecture),
            ("beta.kubernetes.io/os", &machine.operating_system),
            ("beta.kubernetes.io/arch", &machine.architecture),
        ]
        .map(|(label, value)| (label.to_owned(), value.clone()))
        .into();
        labels.extend(config.node_labels.clone());
        let mut taints = config.register_with_taints.clone();
        if config.external_cloud_provider {
            taints.push(Taint {
                key: UNINITIALIZED.to_owned(),
                value: Some("true".to_owned()),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            });
        }
        let managed = || BTreeMap::from([(CONTROLLER_MANAGED_ATTACH.to_owned(), "true".to_owned())]);
        Node {
            metadata: ObjectMeta {
                name: Some(config.node_name.clone()),
                labels: Some(labels),
                annotations: config.enable_controller_attach_detach.then(managed),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(taints).filter(|taints| !taints.is_empty()),
                provider_id: config.provider_id.clone().filter(|id| !id.is_empty()),
                ..NodeSpec::default()
            }),
            status: None,
        }
    }

    /// Checks that the node has addresses, with the setter for addresses.
    pub(crate) async fn resolve_addresses(&self) -> Result<()> {
        let setter = self.setters.iter().find(|setter| setter.name() == ADDRESSES);
        match setter {
            Some(setter) => setter.set(&mut self.bare_node()).await,
            None => Ok(()),
        }
    }

    /// Fills in the current status of `node`, setter by setter (`setNodeStatus`).
    pub async fn set_status(&self, node: &mut Node) {
        for setter in &self.setters {
            if let Err(error) = setter.set(node).await {
                let (node, setter) = (self.name(), setter.name());
                tracing::error!(node, setter, %error, "failed to set some node status fields");
            }
        }
    }

    /// Emits the event `Starting` (`BirthCry`). Also emits warnings about the machine where they apply:
    /// `PossibleMemoryBackedVolumesOnDisk` before it and `CgroupV1` after it (`cgroupVersionCheck`).
    pub fn birth_cry(&self) {
        if self.machine.tmpfs_may_be_swapped {
            let reason = "PossibleMemoryBackedVolumesOnDisk";
            self.events
                .record_node(EventType::Warning, reason, TMPFS_MAY_BE_SWAPPED.to_owned());
        }
        let message = "Starting kubelet.".to_owned();
        self.events.record_node(EventType::Normal, "Starting", message);
        let Some(version) = self.machine.cgroup_version else {
            return;
        };
        gauge!("kubelet_cgroup_version").set(version);
        if version == 1 {
            self.events
                .record_node(EventType::Warning, "CgroupV1", CGROUP_V1_DEPRECATED.to_owned());
        }
    }

    /// The limits for all pods of the node together (`enforceNodeAllocatableCgroups`): the machine's capacity
    /// or, if `enforceNodeAllocatable` contains `pods`, the capacity without the reserved resources.
    pub fn bound_of_all_pods(&self, enforce_node_allocatable: &[String]) -> BTreeMap<String, Quantity> {
        match enforce_node_allocatable.iter().any(|what| what == "pods") {
            true => self.config.reservation.allocatable_absolute(&self.machine),
            false => Reservation::default().allocatable_absolute(&self.machine),
        }
    }

    pub(crate) fn config(&self) -> &NodeConfig {
        &self.config
    }

    pub(crate) fn machine(&self) -> &MachineInfo {
        &self.machine
    }

    /// Records a stage of the node's start.
    pub(crate) fn startup(&self, note: impl FnOnce(&mut StartupLatency, Timestamp)) {
        note(&mut self.startup.lock(), self.clock.now());
    }

    /// The problems that the ready checks report.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.checks.iter().flat_map(|check| check.problems()).collect()
    }

    /// Runs all ready checks now.
    pub(crate) async fn refresh(&self) {
        for check in self.checks.iter() {
            check.refresh().await;
        }
    }

    /// Changes when other volumes are in use than before. `None` if that is not observed.
    pub(crate) fn volume_changes(&self) -> Option<watch::Receiver<u64>> {
        self.volumes.as_ref()?.changes()
    }

    /// Passes on the volumes that the API server shows for this node.
    pub(crate) fn mark_volumes(&self, node: &Node) {
        if let Some(volumes) = &self.volumes {
            let status = node.status.as_ref();
            let shown = status.and_then(|status| status.volumes_in_use.as_deref());
            volumes.mark_reported(shown.unwrap_or_default());
        }
    }

    /// The initial node, made again after 10 s at the earliest.
    pub(crate) async fn stand_in(&self) -> Arc<Node> {
        let made = self.stand_in.lock().clone();
        if let Some((at, node)) = made
            && at.elapsed() < STAND_IN_FOR
        {
            return node;
        }
        let node = Arc::new(self.initial_node().await);
        *self.stand_in.lock() = Some((Instant::now(), node.clone()));
        node
    }
}

impl fmt::Debug for LocalNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setters: Vec<&str> = self.setters.iter().map(|setter| setter.name()).collect();
        f.debug_struct("LocalNode")
            .field("config", &self.config)
            .field("setters", &setters)
            .finish_non_exhaustive()
    }
}

/// Builds a [`LocalNode`].
#[must_use]
pub struct LocalNodeBuilder {
    config: NodeConfig,
    machine: Arc<MachineInfo>,
    network: Arc<dyn HostNetwork>,
    runtime: Arc<dyn NodeRuntime>,
    checks: Vec<Arc<dyn ReadyCheck>>,
    pressure: Arc<dyn Pressure>,
    volumes: Option<Arc<dyn VolumesInUse>>,
    setters: Vec<Arc<dyn NodeStatusSetter>>,
    events: Arc<dyn NodeEventRecorder>,
    clock: Clock,
}

impl LocalNodeBuilder {
    /// The node's name.
    pub fn node_name(&self) -> &str {
        &self.config.node_name
    }

    /// Where the host's addresses come from. Default: the system, [`SystemNetwork`].
    pub fn network(mut self, network: impl HostNetwork + 'static) -> Self {
        self.network = Arc::new(network);
        self
    }

    /// The runtime. Default: none.
    pub fn runtime(mut self, runtime: Arc<dyn NodeRuntime>) -> Self {
        self.runtime = runtime;
        self
    }

    /// Adds a condition for the node to be ready. Problems are reported in the order of these calls. The
    /// kubelet's order is runtime ([`RuntimeState`](kubelet_core::RuntimeState) is a check), storage, shutdown.
    pub fn ready_check(mut self, check: impl ReadyCheck + 'static) -> Self {
        self.checks.push(Arc::new(check));
        self
    }

    /// Reports which resources are under pressure. Default: none.
    pub fn pressure(mut self, pressure: Arc<dyn Pressure>) -> Self {
        self.pressure = pressure;
        self
    }

    /// Reports the attached volumes. Default: none, and the field stays unchanged.
    pub fn volumes_in_use(mut self, volumes: Arc<dyn VolumesInUse>) -> Self {
        self.volumes = Some(volumes);
        self
    }

    /// Adds a setter. It replaces the built-in one of the same name; otherwise it runs just before the last
    /// condition, `Ready`.
    ///
    /// The built-in setters are `addresses`, `machine` (capacity, allocatable, ids), `versions`,
    /// `daemonEndpoints`, `images`, `runtimeHandlers`, `MemoryPressure`, `DiskPressure`, `PIDPressure`,
    /// `Ready`, `volumesInUse`, `schedulable` and `declaredFeatures`.
    pub fn setter(mut self, setter: Arc<dyn NodeStatusSetter>) -> Self {
        self.setters.push(setter);
        self
    }

    /// Where the node's events are recorded. Default: the log.
    pub fn events(mut self, events: Arc<dyn NodeEventRecorder>) -> Self {
        self.events = events;
        self
    }

    /// The clock for the times in conditions.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the node.
    pub fn build(self) -> LocalNode {
        let checks: Arc<[Arc<dyn ReadyCheck>]> = self.checks.clone().into();
        let mut setters = self.default_setters(checks.clone());
        for setter in self.setters {
            let same = setters.iter_mut().find(|known| known.name() == setter.name());
            if let Some(known) = same {
                *known = setter;
                continue;
            }
            let last = setters.iter().position(|known| known.name() == READY);
            setters.insert(last.unwrap_or(setters.len()), setter);
        }
        let booted = self.machine.boot_time;
        LocalNode {
            config: self.config,
            machine: self.machine,
            setters,
            checks,
            runtime: self.runtime,
            volumes: self.volumes,
            events: self.events,
            clock: self.clock,
            startup: Mutex::new(StartupLatency::new(booted, self.clock.now())),
            stand_in: Mutex::new(None),
            pressures: Mutex::default(),
        }
    }

    /// The setters in the kubelet's order (`defaultNodeStatusFuncs`).
    fn default_setters(&self, checks: Arc<[Arc<dyn ReadyCheck>]>) -> Vec<Arc<dyn NodeStatusSetter>> {
        let Self {
            config,
            machine,
            runtime,
            events,
            ..
        } = self;
        let pressure = |of| PressureCondition {
            of,
            pressure: self.pressure.clone(),
            clock: self.clock,
            events: events.clone(),
        };
        let mut setters: Vec<Arc<dyn NodeStatusSetter>> = vec![
            Arc::new(Addresses {
                network: self.network.clone(),
                node_ips: config.node_ips.clone(),
                hostname: config.hostname.clone(),
                external_cloud_provider: config.external_cloud_provider,
            }),
            Arc::new(Machine {
                info: machine.clone(),
                reservation: config.reservation.clone(),
                max_pods: config.max_pods,
                pods_per_core: config.pods_per_core,
                local_storage_capacity_isolation: config.local_storage_capacity_isolation,
                events: events.clone(),
                reboot_reported: AtomicBool::new(false),
            }),
            Arc::new(Versions {
                machine: machine.clone(),
                runtime: runtime.clone(),
                kubelet_version: config.kubelet_version.clone(),
                last_version: LastAnswer::default(),
            }),
            Arc::new(Endpoints {
                kubelet_port: config.kubelet_port,
            }),
            Arc::new(Images {
                runtime: runtime.clone(),
                most: config.node_status_max_images,
                last_images: LastAnswer::default(),
            }),
            Arc::new(Handlers {
                runtime: runtime.clone(),
            }),
            Arc::new(pressure(PressureOf::Memory)),
            Arc::new(pressure(PressureOf::Disk)),
            Arc::new(pressure(PressureOf::Pid)),
            Arc::new(Ready {
                checks,
                local_storage_capacity_isolation: config.local_storage_capacity_isolation,
                clock: self.clock,
                events: events.clone(),
            }),
        ];
        if let Some(volumes) = self.volumes.clone() {
            setters.push(Arc::new(Volumes { volumes }));
        }
        setters.push(Arc::new(Schedulable {
            events: events.clone(),
            was_unschedulable: AtomicBool::new(false),
        }));
        setters.push(Arc::new(DeclaredFeatures {
            features: config.declared_features.clone(),
        }));
        setters
    }
}

kubelet_core::impl_debug!(LocalNodeBuilder: config);
