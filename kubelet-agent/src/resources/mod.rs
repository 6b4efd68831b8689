//! The room of resources: which CPUs, memory and devices containers get.

#[cfg(feature = "apiserver")]
mod capacity;
mod configured;
mod runtime;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::cgroups::ExclusiveCpus;
use kubelet_core::{
    ContainerResources, KubeletHandle, NodeGetter, PodAdmitHandler, ResourceHealth, ResourceUpdates,
};
use kubelet_cri::RuntimeService;
use kubelet_node::MachineInfo;
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::devices::{DeviceManager, DeviceManagerHandle};
use kubelet_resources::pod_resources::{DynamicResourcesProvider, PodResources, SOCKET};
use kubelet_resources::{KubeletPods, Machine, ResourceManager, ResourceManagerHandle};

use self::configured::resources;
use self::runtime::{CriUpdates, containers_at_start};
use crate::context::Context;
use crate::error::Problems;
use crate::plugins::PluginRoom;
use crate::tasks::Tasks;
use crate::{Result, Settings};

/// The folder of the sockets of device plugins, below the folder of the agent.
const DEVICE_PLUGINS: &str = "device-plugins";

/// The folder of the socket of the pod-resources API (`DefaultKubeletPodResourcesDirName`).
const POD_RESOURCES: &str = "pod-resources";

/// The managers of the resources of containers.
pub(crate) struct ResourceRoom {
    manager: ResourceManager,
    devices: DeviceManager,
    handles: ResourceHandles,
}

/// What the other rooms use of it.
#[derive(Clone)]
pub(crate) struct ResourceHandles {
    pub(crate) manager: ResourceManagerHandle,
    pub(crate) devices: DeviceManagerHandle,
}

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    problems.note(resources(settings, &BTreeMap::new()));
}

/// Whether an agent before this one has had devices here. If not, the machine may be a new one of the same name
/// (`ShouldResetExtendedResourceCapacity`).
#[cfg(feature = "apiserver")]
pub(crate) fn had_devices(root_dir: &Path) -> bool {
    let state = kubelet_resources::devices::DEVICE_MANAGER_STATE;
    root_dir.join(DEVICE_PLUGINS).join(state).exists()
}

/// A runtime that places its containers itself gets no resources from here, and says so if the configuration asks for them.
pub(crate) fn ignore(settings: &Settings) {
    let config = &settings.configuration;
    for (field, policy) in [
        ("cpuManagerPolicy", &config.cpu_manager_policy),
        ("memoryManagerPolicy", &config.memory_manager_policy),
        ("topologyManagerPolicy", &config.topology_manager_policy),
    ] {
        if !policy.eq_ignore_ascii_case("none") {
            tracing::warn!(
                field,
                policy,
                "ignored: this runtime places its containers itself"
            );
        }
    }
}

impl ResourceRoom {
    /// Takes over the state of the agent before, and offers the device manager to plugins. `machine`: `None` is this one. `updates` gets
    /// the pods whose devices changed their health, if their statuses show it.
    pub(crate) async fn new(
        context: &Context,
        runtime: &Arc<dyn RuntimeService>,
        machine: Option<Machine>,
        plugins: &PluginRoom,
        updates: Option<ResourceUpdates>,
    ) -> Result<Self> {
        let root_dir = context.root_dir.path();
        let machine = match machine {
            Some(machine) => machine,
            None => read_machine(context).await?,
        };
        let config = resources(&context.settings, &reserved(&context.settings, &machine)?)?;
        let at_start = containers_at_start(runtime.as_ref()).await;
        let folder = root_dir.join(DEVICE_PLUGINS);
        let devices = DeviceManager::builder(&folder, Arc::new(StateFolder::new(&folder)))
            .disk(context.disk)
            .running(at_start.running)
            .extended_resource_claims(context.settings.feature_gates.enabled("DRAExtendedResource"));
        let devices = match updates {
            Some(updates) => devices.updates(updates),
            None => devices,
        };
        let devices = devices.start(&machine).await;
        plugins.add(kubelet_plugins::DEVICE_PLUGIN, Arc::new(devices.handle()));
        let updates = Arc::new(CriUpdates::new(runtime.clone()));
        let period = context.settings.configuration.cpu_manager_reconcile_period;
        let manager = ResourceManager::builder(Arc::new(StateFolder::new(root_dir)), updates)
            .disk(context.disk)
            .containers(at_start.names)
            .reconcile_period(crate::configured::time(period))
            .plugins(Arc::new(devices.handle()))
            .start(&machine, &config)
            .await?;
        let handles = ResourceHandles {
            manager: manager.handle(),
            devices: devices.handle(),
        };
        Ok(Self {
            manager,
            devices,
            handles,
        })
    }

    pub(crate) fn handles(&self) -> ResourceHandles {
        self.handles.clone()
    }

    /// Adds the engines, and the API that lists what containers have, also the devices of their claims.
    pub(crate) fn start(
        self,
        context: &Context,
        kubelet: &KubeletHandle,
        claims: Option<Arc<dyn DynamicResourcesProvider>>,
        tasks: &mut Tasks,
    ) {
        let pods = Arc::new(KubeletPods::new(kubelet.clone()));
        let gates = &context.settings.feature_gates;
        let mut api = PodResources::builder(pods.clone(), self.handles.manager.clone())
            .devices(self.handles.devices.clone())
            .active_only(gates.enabled("KubeletPodResourcesListUseActivePods"));
        if let Some(claims) = claims {
            api = api.dynamic_resources(claims);
        }
        let api = api.build();
        let socket = context.root_dir.path().join(POD_RESOURCES).join(SOCKET);
        tasks.add("pod-resources API", |shutdown| async move {
            if let Err(error) = api.serve(&socket, shutdown).await {
                tracing::error!(socket = %socket.display(), %error, "cannot serve the pod-resources API");
            }
        });
        let (manager, devices, of_devices) = (self.manager, self.devices, pods.clone());
        tasks.add("devices", |shutdown| devices.run(of_devices, shutdown));
        tasks.add("resources", |shutdown| manager.run(pods, shutdown));
    }
}

impl ResourceHandles {
    pub(crate) fn admission(&self) -> Arc<dyn PodAdmitHandler> {
        Arc::new(self.manager.clone())
    }

    pub(crate) fn of_containers(&self) -> Arc<dyn ContainerResources> {
        Arc::new(self.manager.clone())
    }

    /// For the statuses of pods.
    pub(crate) fn health(&self) -> Arc<dyn ResourceHealth> {
        Arc::new(self.devices.clone())
    }

    /// Which containers get no CPU quota, if any are to have none.
    pub(crate) fn exclusive_cpus(&self, settings: &Settings) -> Option<Arc<dyn ExclusiveCpus>> {
        let enabled = settings.feature_gates.enabled("DisableCPUQuotaWithExclusiveCPUs");
        enabled.then(|| Arc::new(self.manager.clone()) as _)
    }

    /// The node for admission: pods that have devices fit, even if the plugins of these are gone.
    #[cfg(feature = "apiserver")]
    pub(crate) fn node(&self, node: Arc<dyn NodeGetter>) -> Arc<dyn NodeGetter> {
        Arc::new(capacity::NodeWithDevices::new(node, self.devices.clone()))
    }

    #[cfg(not(feature = "apiserver"))]
    pub(crate) fn node(&self, node: Arc<dyn NodeGetter>) -> Arc<dyn NodeGetter> {
        node
    }

    /// Reports the devices in the node's status.
    #[cfg(feature = "apiserver")]
    pub(crate) fn setter(&self) -> Arc<dyn kubelet_node::NodeStatusSetter> {
        Arc::new(capacity::Devices::new(self.devices.clone()))
    }
}

/// The machine below `/sys`. Without the static policies a machine that cannot be read has no NUMA nodes.
async fn read_machine(context: &Context) -> Result<Machine> {
    let read = context.disk.run(|| Ok(Machine::read(Path::new("/sys")))).await;
    let read = read.map_err(|source| crate::Error::Io {
        what: "cannot read the machine".to_owned(),
        source,
    })?;
    let config = &context.settings.configuration;
    let needed = config.cpu_manager_policy != "none"
        || config.memory_manager_policy != "None"
        || config.topology_manager_policy != "none";
    match read {
        Ok(machine) => Ok(machine),
        Err(error) if needed => Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, "cannot read the NUMA nodes of the machine");
            Ok(Machine { nodes: Vec::new() })
        }
    }
}

/// What the node reserves as a whole (`GetNodeAllocatableReservation`).
fn reserved(settings: &Settings, machine: &Machine) -> Result<BTreeMap<String, Quantity>> {
    let cores = machine.nodes.iter().flat_map(|node| &node.cores);
    let cpus: usize = cores.map(|core| core.threads.len()).sum();
    let memory = machine.nodes.iter().map(|node| node.memory).sum();
    let mut info = MachineInfo::new(u32::try_from(cpus).unwrap_or(u32::MAX), memory);
    for pages in machine.nodes.iter().flat_map(|node| &node.huge_pages) {
        let page_size = pages.size_kib.saturating_mul(1024);
        let known = info
            .huge_pages
            .iter_mut()
            .find(|known| known.page_size == page_size);
        match known {
            Some(known) => known.pages += pages.count,
            None => info.huge_pages.push(kubelet_node::HugePages {
                page_size,
                pages: pages.count,
            }),
        }
    }
    Ok(configured::reservation(settings)?.of_node(&info))
}
