//! The runtime, at the height that was chosen.

use std::sync::Arc;

use kubelet_config::credential_provider::CredentialProviderConfig;
use kubelet_core::cgroups::{ExclusiveCpus, NoExclusiveCpus};
use kubelet_core::runtime::streaming::{StreamingRuntime, StreamingServer};
use kubelet_core::runtime::{ContainerLogs, Runtime, RuntimeReader};
use kubelet_core::{
    ContainerResources, DynamicResources, EventType, NodeRuntime as _, PodStatusReporter, ProbeResultCache,
    VolumeManager,
};
use kubelet_cri::verbs::{ContainerRuntime, CriAdapterBuilder};
use kubelet_cri::{CriAdapter, ImageService, KUBELET_API_VERSION, RuntimeService, v1};
use kubelet_kuberuntime::{CgroupDriver, CriNodeRuntime, CriRuntime, CriRuntimeBuilder, NodeSettings};
use kubelet_node::LocalNodeBuilder;
use kubelet_resources::cgroups::PodCgroups;

use super::cgroups;
use super::objects::Objects;
use crate::configured;
use crate::context::{Change, Context, changed, with};
use crate::error::{Error, Result};
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// What the builder gathers for the runtime.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) choice: RuntimeChoice,
    pub(crate) adapter: Change<CriAdapterBuilder>,
    pub(crate) changes: Change<CriRuntimeBuilder>,
    pub(crate) logs: Option<Arc<dyn ContainerLogs>>,
    pub(crate) streaming: Option<Arc<dyn StreamingRuntime>>,
}

/// The runtime that was chosen.
#[derive(Default)]
pub(crate) enum RuntimeChoice {
    #[default]
    None,
    #[cfg(feature = "cri")]
    Endpoint,
    Services(Arc<dyn RuntimeService>, Arc<dyn ImageService>),
    Verbs(Arc<dyn ContainerRuntime>),
    Pods(Arc<dyn Runtime>),
}

impl RuntimeChoice {
    /// Whether containers see mounts of this host: then the folder of the agent is shared with them.
    pub(crate) fn mounts(&self) -> bool {
        match self {
            #[cfg(feature = "cri")]
            Self::Endpoint => true,
            _ => false,
        }
    }

    /// Whether the agent makes the cgroups of the runtime's pods, and places their containers on CPUs.
    pub(crate) fn makes_cgroups(&self) -> bool {
        match self {
            #[cfg(feature = "cri")]
            Self::Endpoint => true,
            Self::Services(..) => true,
            _ => false,
        }
    }

    /// Whether the agent serves the streams of the runtime, which has no server of its own.
    pub(crate) fn needs_streams(&self) -> bool {
        matches!(self, Self::Verbs(_))
    }
}

#[cfg_attr(not(feature = "cri"), allow(unused_variables, reason = "endpoints need gRPC"))]
pub(crate) fn check(settings: &Settings, parts: &Parts, problems: &mut Problems) {
    let config = &settings.configuration;
    #[cfg(feature = "cri")]
    if matches!(parts.choice, RuntimeChoice::Endpoint) {
        for (field, endpoint) in [
            ("containerRuntimeEndpoint", &config.container_runtime_endpoint),
            ("imageServiceEndpoint", &config.image_service_endpoint),
        ] {
            let is_given = field == "containerRuntimeEndpoint" || !endpoint.is_empty();
            if is_given && let Err(error) = kubelet_cri::CriClient::builder(endpoint).check() {
                problems.add(field, error.to_string());
            }
        }
    }
    // Settings made in code did not pass the checks of a file.
    let providers: Vec<_> = settings
        .credential_providers
        .iter()
        .map(|(_, it)| it.clone())
        .collect();
    if !providers.is_empty() {
        let valid = CredentialProviderConfig { providers }.validate(&settings.feature_gates);
        let valid = valid.map_err(kubelet_config::Error::from);
        problems.note("--image-credential-provider-config", valid);
    }
}

/// Notes what containers would need of this machine. A runtime that does not answer is no problem: the agent waits for it.
pub(crate) async fn inspect(inspection: &Inspection<'_>, parts: &Parts, problems: &mut Problems) {
    if matches!(parts.choice, RuntimeChoice::None | RuntimeChoice::Pods(_)) {
        return;
    }
    let (settings, disk) = (inspection.settings, inspection.disk);
    let config = &settings.configuration;
    let logs = std::path::Path::new(&config.pod_logs_dir);
    if logs.is_absolute() {
        inspection.writes("podLogsDir", logs, problems).await;
    }
    if inspection.makes_cgroups {
        let ids = configured::user_namespaces(config, disk).await;
        problems.note("userNamespaces.idsPerPod", ids);
    }
    let providers = settings.credential_providers.clone();
    let providers = providers.into_iter().map(configured::credential_provider);
    let providers: Vec<_> = providers.collect();
    let look = move || Ok(providers.iter().filter_map(|it| it.problem()).collect::<Vec<_>>());
    for problem in inspection.look(look).await.unwrap_or_default() {
        problems.add("--image-credential-provider-bin-dir", problem);
    }
}

/// A runtime that answers.
pub(crate) enum Connected {
    Containers(Services),
    Pods(Arc<dyn Runtime>),
}

/// The services of CRI.
pub(crate) struct Services {
    runtime: Arc<dyn RuntimeService>,
    images: Arc<dyn ImageService>,
    /// What the node's status reports of the runtime.
    pub(crate) of_node: Arc<CriNodeRuntime>,
    /// Whether the agent makes the cgroups of pods. A runtime of one's own isolates its containers itself.
    cgroups: bool,
}

impl Services {
    /// The runtime, if containers are placed on CPUs and get devices through it. A runtime of one's own places its containers itself.
    pub(crate) fn of_resources(&self) -> Option<&Arc<dyn RuntimeService>> {
        self.cgroups.then_some(&self.runtime)
    }
}

impl Connected {
    /// The services, for a runtime of containers.
    pub(crate) fn services(&self) -> Option<&Services> {
        match self {
            Self::Containers(services) => Some(services),
            Self::Pods(_) => None,
        }
    }

    /// What the status of the node reports of the runtime.
    pub(crate) fn report(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        with(node, self.services(), |node, services| {
            node.runtime(services.of_node.clone())
        })
    }
}

/// Connects to the runtime, and waits until it answers. `streams` serves what a runtime of verbs cannot serve itself.
pub(crate) async fn connect(
    choice: RuntimeChoice,
    adapter: Change<CriAdapterBuilder>,
    context: &Context,
    streams: Option<Arc<dyn StreamingServer>>,
) -> Result<Connected> {
    let config = &context.settings.configuration;
    let (runtime, images, cgroups, name): (Arc<dyn RuntimeService>, Arc<dyn ImageService>, _, _) =
        match choice {
            RuntimeChoice::None => {
                let problems = vec!["no runtime".to_owned()];
                return Err(Error::Misconfigured { problems });
            }
            RuntimeChoice::Pods(runtime) => return Ok(Connected::Pods(runtime)),
            #[cfg(feature = "cri")]
            RuntimeChoice::Endpoint => {
                let timeout = configured::time(config.runtime_request_timeout);
                let stream_lists = context.settings.feature_gates.enabled("CRIListStreaming");
                let open = |endpoint: &str| {
                    kubelet_cri::CriClient::builder(endpoint)
                        .timeout(timeout)
                        .stream_lists(stream_lists)
                        .connect_lazy()
                };
                let services = Arc::new(open(&config.container_runtime_endpoint)?);
                let images = match config.image_service_endpoint.as_str() {
                    "" => services.clone(),
                    endpoint => Arc::new(open(endpoint)?),
                };
                let name = services.wait_ready().await?.runtime_name.clone();
                (services, images, true, name)
            }
            RuntimeChoice::Services(runtime, images) => {
                let request = v1::VersionRequest {
                    version: KUBELET_API_VERSION.to_owned(),
                };
                let name = runtime.version(request).await?.runtime_name;
                (runtime, images, true, name)
            }
            RuntimeChoice::Verbs(verbs) => {
                let name = verbs.name().to_owned();
                let builder = CriAdapter::builder(verbs)
                    .records_dir(context.root_dir.path().join("cri"))
                    .clock(context.clock);
                let builder = with(builder, streams, |builder, streams| builder.streaming(streams));
                let adapter = Arc::new(changed(adapter, builder).build());
                (adapter.clone(), adapter, false, name)
            }
        };
    let of_node = Arc::new(CriNodeRuntime::new(runtime.clone(), name));
    if !config.pod_cidr.is_empty()
        && let Err(error) = of_node.update_pod_cidr(&config.pod_cidr).await
    {
        tracing::error!(%error, "Pod CIDR update failed");
    }
    Ok(Connected::Containers(Services {
        runtime,
        images,
        of_node,
        cgroups,
    }))
}

/// What a runtime of containers uses of other parts.
pub(crate) struct Uses {
    pub(crate) node: NodeSettings,
    pub(crate) objects: Objects,
    pub(crate) volumes: Arc<dyn VolumeManager>,
    pub(crate) statuses: Arc<dyn PodStatusReporter>,
    pub(crate) probes: ProbeResultCache,
    pub(crate) resources: Option<Arc<dyn ContainerResources>>,
    /// `None`: containers keep their CPU quota.
    pub(crate) exclusive_cpus: Option<Arc<dyn ExclusiveCpus>>,
    pub(crate) claims: Option<Arc<dyn DynamicResources>>,
}

/// The runtime of the agent. The services and the manager are there for a runtime of containers.
#[derive(Clone)]
pub(crate) struct RuntimeRoom {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) services: Option<Arc<dyn RuntimeService>>,
    pub(crate) manager: Option<Arc<CriRuntime>>,
    pub(crate) of_node: Option<Arc<CriNodeRuntime>>,
    pub(crate) cgroups: Option<Arc<PodCgroups>>,
    pub(crate) logs: Option<Arc<dyn ContainerLogs>>,
    pub(crate) streaming: Option<Arc<dyn StreamingRuntime>>,
}

impl RuntimeRoom {
    /// Builds the runtime of pods, over what was connected.
    pub(crate) async fn open(
        connected: Connected,
        context: &Context,
        parts: Parts,
        uses: Uses,
    ) -> Result<Self> {
        let mut room = match connected {
            Connected::Pods(runtime) => Self::of_pods(runtime),
            Connected::Containers(services) => {
                Self::of_containers(services, context, uses, parts.changes).await?
            }
        };
        room.logs = parts.logs.or(room.logs);
        room.streaming = parts.streaming.or(room.streaming);
        Ok(room)
    }

    pub(crate) fn reader(&self) -> Arc<dyn RuntimeReader> {
        self.runtime.clone()
    }

    /// The settings, with the cgroup driver of the runtime in place of theirs if it reports one.
    pub(crate) fn settle(&self, settings: &Arc<Settings>) -> Arc<Settings> {
        match &self.manager {
            Some(manager) => with_driver(settings, &manager.node_settings().cgroup_driver),
            None => settings.clone(),
        }
    }

    fn of_pods(runtime: Arc<dyn Runtime>) -> Self {
        Self {
            runtime,
            services: None,
            manager: None,
            of_node: None,
            cgroups: None,
            logs: None,
            streaming: None,
        }
    }

    /// Builds the manager of containers over the services.
    async fn of_containers(
        services: Services,
        context: &Context,
        uses: Uses,
        changes: Change<CriRuntimeBuilder>,
    ) -> Result<Self> {
        let settings = &*context.settings;
        let (config, gates) = (&settings.configuration, &settings.feature_gates);
        let (first_wait, longest_wait) = config.restart_back_off(gates);
        let mut node = uses.node;
        if services.cgroups {
            node.user_namespaces = configured::user_namespaces(config, context.disk).await?;
        } else {
            node.cgroup_driver = CgroupDriver::None;
        }
        let mut manager = CriRuntime::builder(services.runtime.clone(), services.images)
            .node(node)
            .root_dir(context.root_dir.path())
            .disk(context.disk)
            .clock(context.clock)
            .pod_logs_dir(&config.pod_logs_dir)
            .image_pulls(configured::image_pulls(config, gates))
            .crash_loop_back_off(first_wait, longest_wait)
            .events(context.recorder.clone())
            .node_events(context.node_recorder.clone())
            .probes(Arc::new(uses.probes))
            .statuses(uses.statuses)
            .config_objects(uses.objects.config_objects)
            .services(uses.objects.services)
            .service_accounts(uses.objects.accounts)
            .runtime_classes(uses.objects.runtime_classes)
            .volumes(uses.volumes);
        manager = with(manager, uses.resources, CriRuntimeBuilder::container_resources);
        manager = with(manager, uses.claims, CriRuntimeBuilder::dynamic_resources);
        let exclusive_cpus = uses.exclusive_cpus.unwrap_or_else(|| Arc::new(NoExclusiveCpus));
        manager = manager.exclusive_cpus(exclusive_cpus.clone());
        if !settings.container_log_links.as_os_str().is_empty() {
            manager = manager.container_log_links(&settings.container_log_links);
        }
        for provider in settings.credential_providers.iter().cloned() {
            manager = manager.credential_provider(configured::credential_provider(provider));
        }
        let manager = changed(changes, manager).build().await?;
        let mut cgroups = None;
        let manager = match services.cgroups {
            true => {
                let node = manager.node_settings();
                let pods = node.pod_cgroups();
                let made = cgroups::open(context, pods, node.memory_capacity, exclusive_cpus).await?;
                cgroups = Some(made.clone());
                manager.with_pod_cgroups(made)
            }
            false => manager,
        };
        let manager = Arc::new(manager);
        Ok(Self {
            runtime: manager.clone(),
            services: Some(services.runtime),
            of_node: Some(services.of_node),
            cgroups,
            logs: Some(manager.clone()),
            streaming: Some(manager.clone()),
            manager: Some(manager),
        })
    }
}

/// Emits an event if the search domains of the host leave no room for those of pods (`CheckLimitsForResolvConf`). Like the
/// kubelet, it checks them once.
pub(crate) fn start(context: &Context, runtime: &RuntimeRoom, tasks: &mut Tasks) {
    let Some(manager) = runtime.manager.clone() else {
        return;
    };
    let (disk, events) = (context.disk, context.node_recorder.clone());
    tasks.add("resolv.conf", move |_| async move {
        let check = move || Ok(manager.node_settings().check_resolv_conf());
        if let Ok(Err(problem)) = disk.run(check).await {
            events.record_node(EventType::Warning, "CheckLimitsForResolvConf", problem);
        }
    });
}

/// The settings with this cgroup driver.
fn with_driver(settings: &Arc<Settings>, driver: &CgroupDriver) -> Arc<Settings> {
    let driver = match driver {
        CgroupDriver::Systemd { .. } => "systemd",
        CgroupDriver::Cgroupfs { .. } => "cgroupfs",
        _ => return settings.clone(),
    };
    if settings.configuration.cgroup_driver == driver {
        return settings.clone();
    }
    tracing::info!(
        driver,
        "the runtime's cgroup driver counts, not that of the configuration"
    );
    let mut settings = Settings::clone(settings);
    settings.configuration.cgroup_driver = driver.to_owned();
    Arc::new(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtimes_cgroup_driver_counts() {
        let root = || "/".to_owned();
        for (configured, of_runtime, counts) in [
            ("systemd", CgroupDriver::Cgroupfs { root: root() }, "cgroupfs"),
            ("cgroupfs", CgroupDriver::Systemd { root: root() }, "systemd"),
            ("systemd", CgroupDriver::Systemd { root: root() }, "systemd"),
            ("systemd", CgroupDriver::None, "systemd"),
        ] {
            let mut settings = Settings::new("/var/lib/kubelet");
            settings.configuration.cgroup_driver = configured.to_owned();
            let settled = with_driver(&Arc::new(settings), &of_runtime);
            assert_eq!(settled.configuration.cgroup_driver, counts, "{of_runtime:?}");
        }
    }
}
