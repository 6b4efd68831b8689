//! The room of resources: which CPUs and memory containers get. Devices and claims come from plugins.

mod configured;
mod runtime;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::cgroups::ExclusiveCpus;
use kubelet_core::{ContainerResources, Disk, KubeletHandle, PodAdmitHandler};
use kubelet_cri::RuntimeService;
use kubelet_node::MachineInfo;
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::{
    KubeletPods, Machine, PluginAllocator, ResourceManager, ResourceManagerBuilder, ResourceManagerHandle,
};

use self::configured::resources;
use self::runtime::{ContainersAtStart, CriUpdates, containers_at_start};
use crate::configured::{reservation, time};
use crate::context::{Context, with};
use crate::error::{Error, Result};
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    for (field, error) in configured::problems(settings) {
        problems.note(field, Err::<(), _>(error));
    }
}

/// Notes policies that do not suit this machine or the state of the agent before.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let settings = inspection.settings;
    if !inspection.makes_cgroups {
        return;
    }
    let machine = match inspection.numa_nodes {
        Some(machine) => machine.clone(),
        None => match read_machine(settings, inspection.disk).await {
            Ok(machine) => machine,
            Err(error) => return problems.add("cpuManagerPolicy", error.to_string()),
        },
    };
    // What is wrong with the settings alone is noted already.
    let config = resources(settings, &reserved(settings, &machine));
    let (Ok(config), Ok(root_dir)) = (config, std::path::absolute(&settings.root_dir)) else {
        return;
    };
    let store = Arc::new(StateFolder::new(&root_dir));
    let found = ResourceManagerBuilder::problems(store, inspection.disk, &machine, &config).await;
    for (field, error) in found {
        problems.add(field, error.to_string());
    }
}

/// What there is when the agent starts: the machine, and the containers of the agent before.
pub(crate) struct AtStart {
    pub(crate) machine: Machine,
    runtime: Arc<dyn RuntimeService>,
    containers: ContainersAtStart,
}

impl AtStart {
    /// Reads both. `machine`: `None` is this one. `runtime`: `None` is one that places its containers itself; it gets no resources
    /// from here, and the log says so if the configuration asks for them.
    pub(crate) async fn read(
        context: &Context,
        runtime: Option<&Arc<dyn RuntimeService>>,
        machine: Option<Machine>,
    ) -> Result<Option<Self>> {
        let Some(runtime) = runtime else {
            ignore(&context.settings);
            return Ok(None);
        };
        let machine = match machine {
            Some(machine) => machine,
            None => read_machine(&context.settings, context.disk).await?,
        };
        Ok(Some(Self {
            machine,
            runtime: runtime.clone(),
            containers: containers_at_start(runtime.as_ref()).await,
        }))
    }

    /// The pod's UID and the container's name, of the containers that run.
    pub(crate) fn running(&self) -> BTreeSet<(String, String)> {
        self.containers.running.clone()
    }
}

/// The managers of the resources of containers, if they get some from here.
pub(crate) struct ResourceRoom {
    manager: Option<ResourceManager>,
    handle: Option<ResourceManagerHandle>,
}

impl ResourceRoom {
    /// Takes over the state of the agent before. `plugins` allocate first.
    pub(crate) async fn open(
        context: &Context,
        at_start: Option<AtStart>,
        plugins: Option<Arc<dyn PluginAllocator>>,
    ) -> Result<Self> {
        let Some(at_start) = at_start else {
            return Ok(Self {
                manager: None,
                handle: None,
            });
        };
        let (settings, machine) = (&context.settings, &at_start.machine);
        let config = resources(settings, &reserved(settings, machine))?;
        let store = Arc::new(StateFolder::new(context.root_dir.path()));
        let manager = ResourceManager::builder(store, Arc::new(CriUpdates::new(at_start.runtime)))
            .disk(context.disk)
            .containers(at_start.containers.names)
            .reconcile_period(time(settings.configuration.cpu_manager_reconcile_period));
        let manager = with(manager, plugins, ResourceManagerBuilder::plugins);
        let manager = manager.start(machine, &config).await?;
        Ok(Self {
            handle: Some(manager.handle()),
            manager: Some(manager),
        })
    }

    pub(crate) fn handle(&self) -> Option<&ResourceManagerHandle> {
        self.handle.as_ref()
    }

    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        Some(Arc::new(self.handle.clone()?))
    }

    pub(crate) fn of_containers(&self) -> Option<Arc<dyn ContainerResources>> {
        Some(Arc::new(self.handle.clone()?))
    }

    /// Which containers get no CPU quota, if any are to have none.
    pub(crate) fn exclusive_cpus(&self, settings: &Settings) -> Option<Arc<dyn ExclusiveCpus>> {
        let is_on = settings.feature_gates.enabled("DisableCPUQuotaWithExclusiveCPUs");
        Some(Arc::new(self.handle.clone().filter(|_| is_on)?))
    }

    /// Adds the engine.
    pub(crate) fn start(self, kubelet: &KubeletHandle, tasks: &mut Tasks) {
        if let Some(manager) = self.manager {
            let pods = Arc::new(KubeletPods::new(kubelet.clone()));
            tasks.add("resources", |shutdown| manager.run(pods, shutdown));
        }
    }
}

/// A runtime that places its containers itself gets no resources from here, and says so if the configuration asks for them.
fn ignore(settings: &Settings) {
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

/// The machine below `/sys`. Without the static policies a machine that cannot be read has no NUMA nodes.
async fn read_machine(settings: &Settings, disk: Disk) -> Result<Machine> {
    let read = disk.run(|| Ok(Machine::read(Path::new("/sys")))).await;
    let read = read.map_err(|source| Error::Io {
        what: "cannot read the machine".to_owned(),
        source,
    })?;
    let config = &settings.configuration;
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
fn reserved(settings: &Settings, machine: &Machine) -> BTreeMap<String, Quantity> {
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
    reservation(settings).of_node(&info)
}
