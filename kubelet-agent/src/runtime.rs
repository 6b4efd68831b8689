//! The runtime, at the height that was chosen.

use std::sync::Arc;

use kubelet_core::cgroups::{ExclusiveCpus, NoExclusiveCpus};
use kubelet_core::runtime::streaming::StreamingRuntime;
use kubelet_core::runtime::{ContainerLogs, Runtime, RuntimeReader};
use kubelet_core::{
    ContainerResources, DynamicResources, NodeRuntime as _, PodStatusReporter, ProbeResultCache,
    VolumeManager,
};
#[cfg(feature = "cri")]
use kubelet_cri::CriClient;
use kubelet_cri::{CriAdapter, ImageService, KUBELET_API_VERSION, RuntimeService, v1};
use kubelet_kuberuntime::{CriNodeRuntime, CriRuntime, CriRuntimeBuilder, NodeSettings};
use kubelet_resources::cgroups::PodCgroups;

use crate::builder::{Change, RuntimeChoice, changed};
use crate::configured;
use crate::context::Context;
use crate::error::Problems;
use crate::objects::Objects;
use crate::tasks::Tasks;
use crate::{Result, Settings};

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    if !settings.credential_providers.is_empty() && cfg!(not(feature = "credential-providers")) {
        problems.add("credential providers need the feature `credential-providers` of kubelet-agent");
    }
    #[cfg(not(feature = "resources"))]
    for (field, policy) in [
        ("cpuManagerPolicy", &settings.configuration.cpu_manager_policy),
        (
            "memoryManagerPolicy",
            &settings.configuration.memory_manager_policy,
        ),
        (
            "topologyManagerPolicy",
            &settings.configuration.topology_manager_policy,
        ),
    ] {
        if !policy.eq_ignore_ascii_case("none") {
            problems.add(format!(
                "{field} {policy:?} needs the feature `resources` of kubelet-agent"
            ));
        }
    }
    #[cfg(feature = "logs")]
    problems.note(configured::log_rotation(&settings.configuration));
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
    #[cfg(feature = "resources")]
    pub(crate) fn of_resources(&self) -> Option<&Arc<dyn RuntimeService>> {
        self.cgroups.then_some(&self.runtime)
    }

    /// Whether pods may have user namespaces, which need a range of ids of this host.
    pub(crate) fn has_user_namespaces(&self) -> bool {
        self.cgroups
    }
}

/// Connects to the runtime, and waits until it answers.
pub(crate) async fn connect(
    choice: RuntimeChoice,
    context: &Context,
    tasks: &mut Tasks,
) -> Result<Connected> {
    let config = &context.settings.configuration;
    let (runtime, images, cgroups, name): (Arc<dyn RuntimeService>, Arc<dyn ImageService>, _, _) =
        match choice {
            RuntimeChoice::None => {
                let problems = vec!["no runtime".to_owned()];
                return Err(crate::Error::Misconfigured { problems });
            }
            RuntimeChoice::Pods(runtime) => return Ok(Connected::Pods(runtime)),
            #[cfg(feature = "cri")]
            RuntimeChoice::Endpoint => {
                let timeout = configured::time(config.runtime_request_timeout);
                let open = |endpoint: &str| CriClient::builder(endpoint).timeout(timeout).connect_lazy();
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
                let adapter = CriAdapter::builder(verbs)
                    .records_dir(context.root_dir.path().join("cri"))
                    .clock(context.clock);
                #[cfg(feature = "server")]
                let adapter = match context.serves_streams {
                    true => adapter.streaming(crate::server::streams(tasks).await?),
                    false => adapter,
                };
                let adapter = Arc::new(adapter.build());
                (adapter.clone(), adapter, false, name)
            }
        };
    #[cfg(not(feature = "server"))]
    let _ = tasks;
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
    pub(crate) volumes: Option<Arc<dyn VolumeManager>>,
    pub(crate) statuses: Arc<dyn PodStatusReporter>,
    pub(crate) probes: ProbeResultCache,
    pub(crate) resources: Option<Arc<dyn ContainerResources>>,
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
    pub(crate) fn reader(&self) -> Arc<dyn RuntimeReader> {
        self.runtime.clone()
    }

    pub(crate) fn of_pods(runtime: Arc<dyn Runtime>) -> Self {
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
    pub(crate) async fn of_containers(
        services: Services,
        context: &Context,
        uses: Uses,
        changes: Change<CriRuntimeBuilder>,
    ) -> Result<Self> {
        let settings = &*context.settings;
        let (config, gates) = (&settings.configuration, &settings.feature_gates);
        let (first_wait, longest_wait) = config.restart_back_off(gates);
        let mut node = uses.node;
        if !services.cgroups {
            node.cgroup_driver = kubelet_kuberuntime::CgroupDriver::None;
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
            .runtime_classes(uses.objects.runtime_classes);
        if let Some(volumes) = uses.volumes {
            manager = manager.volumes(volumes);
        }
        if let Some(resources) = uses.resources {
            manager = manager.container_resources(resources);
        }
        let exclusive_cpus = uses.exclusive_cpus.unwrap_or_else(|| Arc::new(NoExclusiveCpus));
        manager = manager.exclusive_cpus(exclusive_cpus.clone());
        if let Some(claims) = uses.claims {
            manager = manager.dynamic_resources(claims);
        }
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
                let made = crate::cgroups::open(context, pods, node.memory_capacity, exclusive_cpus).await?;
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
            #[cfg(feature = "logs")]
            logs: Some(manager.clone()),
            #[cfg(not(feature = "logs"))]
            logs: None,
            streaming: Some(manager.clone()),
            manager: Some(manager),
        })
    }
}
