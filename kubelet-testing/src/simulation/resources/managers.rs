//! The managers of resources of a simulated agent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube_client::Client;
use kubelet_core::labels::{CONTAINER_NAME, POD_UID};
use kubelet_core::{Disk, Jitter, KubeletBuilder, KubeletHandle};
use kubelet_cri::{RuntimeService, v1};
use kubelet_kuberuntime::CriRuntimeBuilder;
use kubelet_plugins::{DRA_PLUGIN, Plugin, PluginHandler as _};
use kubelet_resources::devices::{DeviceManager, DeviceManagerHandle};
use kubelet_resources::dra::{ApiServerClaims, DraManager};
use kubelet_resources::{BoxError, ContainerUpdates, CpuSet, KubeletPods, ResourceManager};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::host::SimulatedMachine;
use crate::MemoryDevicePlugin;
use crate::memory_cri::MemoryCri;
use crate::simulation::agent::AgentError;

/// How long a plugin may take for a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a plugin registers again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an agent waits for the first report of a plugin.
const FIRST_REPORT: Duration = Duration::from_secs(1);

/// The managers before there is a kubelet.
pub(crate) struct Managers {
    machine: SimulatedMachine,
    resources: ResourceManager,
    devices: DeviceManager,
    claims: DraManager,
}

impl Managers {
    /// Takes over the state of the agent before. `reconcile`: how often containers are updated.
    pub(crate) async fn start(
        machine: SimulatedMachine,
        runtime: &Arc<MemoryCri>,
        client: Client,
        name: &str,
        jitter: Jitter,
        reconcile: Duration,
    ) -> Result<Self, AgentError> {
        let devices = DeviceManager::builder("/device-plugins", machine.files.clone())
            .disk(Disk::inline())
            .call_timeout(CALL_TIMEOUT)
            .running(running(runtime.as_ref()).await)
            .registration_socket(false)
            .start(&machine.machine)
            .await;
        let updates = Arc::new(Updates(runtime.clone()));
        let resources = ResourceManager::builder(machine.files.clone(), updates)
            .disk(Disk::inline())
            .reconcile_period(reconcile)
            .plugins(Arc::new(devices.handle()))
            .start(&machine.machine, &machine.config)
            .await?;
        let objects = Arc::new(ApiServerClaims::new(client, name));
        let claims = DraManager::builder(machine.files.clone(), objects)
            .dialer(Arc::new(machine.drivers.clone()))
            .disk(Disk::inline())
            .jitter(jitter)
            .reconcile_period(reconcile.max(kubelet_resources::dra::RECONCILE_PERIOD))
            .start()
            .await?;
        let driver = Plugin::new(DRA_PLUGIN, machine.driver.name(), machine.endpoint());
        let driver = driver.versions(["v1.DRAPlugin"]);
        claims.plugins().register(&driver).await?;
        let this = Self {
            machine,
            resources,
            devices,
            claims,
        };
        // Plugins that are well are here before pods are admitted.
        for plugin in this.machine.plugins.iter() {
            let was_registered = this.machine.has_registered(plugin.resource());
            first_report(&this.devices.handle(), plugin, was_registered).await;
        }
        Ok(this)
    }

    /// Containers get what they were allocated.
    pub(crate) fn runtime(&self, runtime: CriRuntimeBuilder) -> CriRuntimeBuilder {
        runtime
            .container_resources(Arc::new(self.resources.handle()))
            .exclusive_cpus(Arc::new(self.resources.handle()))
            .dynamic_resources(Arc::new(self.claims.handle()))
    }

    /// They admit pods.
    pub(crate) fn admission(&self, kubelet: KubeletBuilder) -> KubeletBuilder {
        kubelet
            .admission(Arc::new(self.resources.handle()))
            .dynamic_resources(Arc::new(self.claims.handle()))
    }

    /// The running managers of this kubelet.
    pub(crate) async fn run(self, kubelet: KubeletHandle, ends: CancellationToken) {
        let pods = Arc::new(KubeletPods::new(kubelet));
        let devices = self.devices.handle();
        let plugins = self
            .machine
            .plugins
            .iter()
            .map(|plugin| register(&devices, plugin));
        let plugins = futures::future::join_all(plugins);
        let plugins = ends.run_until_cancelled(plugins);
        tokio::join!(
            self.devices.run(pods.clone(), ends.clone()),
            self.resources.run(pods.clone(), ends.clone()),
            self.claims.run(pods.clone(), ends.clone()),
            plugins,
        );
    }
}

/// The plugin registers, and reports its devices. Before the first report ever, no scheduler sends a pod that requests them, so this
/// waits for it. Later agents wait a moment only: they reject pods whose devices are missing.
async fn first_report(devices: &DeviceManagerHandle, plugin: &MemoryDevicePlugin, was_registered: bool) {
    let resource = plugin.resource();
    let reported = async {
        while devices
            .connect_in_process(resource, plugin.service())
            .await
            .is_err()
        {
            sleep(PAUSE).await;
        }
        while devices
            .allocatable_devices()
            .get(resource)
            .is_none_or(|all| all.is_empty())
        {
            sleep(Duration::from_millis(1)).await;
        }
    };
    match was_registered {
        true => _ = timeout(FIRST_REPORT, reported).await,
        false => reported.await,
    }
}

/// The plugin registers again whenever it has crashed. Never ends.
async fn register(devices: &DeviceManagerHandle, plugin: &MemoryDevicePlugin) {
    let mut service = plugin.service();
    loop {
        let is_known = devices.allocatable_devices().contains_key(plugin.resource());
        if !is_known
            && devices
                .connect_in_process(plugin.resource(), service.clone())
                .await
                .is_err()
        {
            sleep(PAUSE).await;
            continue;
        }
        service.crashed().await;
        sleep(PAUSE).await;
        service = plugin.service();
        while devices
            .connect_in_process(plugin.resource(), service.clone())
            .await
            .is_err()
        {
            sleep(PAUSE).await;
            service = plugin.service();
        }
    }
}

/// The containers that run when the agent starts: the UIDs of their pods and their names.
async fn running(runtime: &MemoryCri) -> BTreeSet<(String, String)> {
    let containers = loop {
        let listed = runtime.list_containers(v1::ListContainersRequest::default());
        match timeout(CALL_TIMEOUT, listed).await {
            Ok(Ok(listed)) => break listed.containers,
            _ => sleep(PAUSE).await,
        }
    };
    let running = containers
        .into_iter()
        .filter(|container| container.state() == v1::ContainerState::ContainerRunning);
    running
        .filter_map(|container| {
            let label = |name| container.labels.get(name).cloned();
            Some((label(POD_UID)?, label(CONTAINER_NAME)?))
        })
        .collect()
}

/// Changes containers through CRI.
struct Updates(Arc<MemoryCri>);

#[async_trait]
impl ContainerUpdates for Updates {
    async fn update_cpus(&self, container_id: &str, cpus: &CpuSet) -> Result<(), BoxError> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: container_id.to_owned(),
            linux: Some(v1::LinuxContainerResources {
                cpuset_cpus: cpus.to_string(),
                ..Default::default()
            }),
            ..Default::default()
        };
        self.0.update_container_resources(request).await?;
        Ok(())
    }
}
