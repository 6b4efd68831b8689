//! Builds a runtime manager.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::cgroups::{CgroupDriver, ExclusiveCpus, NoExclusiveCpus};
use kubelet_core::{
    Clock, ConfigObjects, ContainerResources, Disk, DynamicResources, Error, EventRecorder, LogEvents,
    NoConfigObjects, NoContainerResources, NoProbes, NoServiceAccounts, NoServices, NoVolumes,
    NodeEventRecorder, PodStatusReporter, ProbeResults, Result, RootDir, RuntimeClasses, ServiceAccounts,
    Services, VolumeManager,
};
use parking_lot::Mutex;

use crate::calls::instrumented::Instrumented;
use crate::calls::missing_calls::MissingCalls;
use crate::config::NodeSettings;
use crate::containers::actuated::Actuated;
use crate::containers::back_off::CrashLoopBackOff;
use crate::containers::unfinished_starts::UnfinishedStarts;
use crate::credential_provider::{CredentialProvider, CredentialProviders};
use crate::images::{ImageManager, ImageManagerParts, ImagePullSettings};
use crate::read::lists::Lists;
use crate::runtime::CriRuntime;
use kubelet_cri::{Code, ImageService, RuntimeService, v1};

/// The first wait and the longest wait for a runtime that does not answer.
const VERSION_WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How often to request the runtime's configuration from a runtime that answers, and how long to wait in between.
const RUNTIME_CONFIG_TRIES: u32 = 3;
const RUNTIME_CONFIG_WAIT: Duration = Duration::from_secs(2);

/// Sets up a [`CriRuntime`]. Every setting has a default: the kubelet's, or none (no volumes, no probes, events go to
/// the log).
#[must_use]
pub struct CriRuntimeBuilder {
    runtime: Arc<dyn RuntimeService>,
    images: Arc<dyn ImageService>,
    node: NodeSettings,
    image_pulls: ImagePullSettings,
    credential_providers: Vec<CredentialProvider>,
    runtime_type: Option<String>,
    runtime_classes: Arc<dyn RuntimeClasses>,
    exclusive_cpus: Arc<dyn ExclusiveCpus>,
    container_log_links: Option<PathBuf>,
    crash_loop: (Duration, Duration),
    clock: Clock,
    recorder: Arc<dyn EventRecorder>,
    node_recorder: Arc<dyn NodeEventRecorder>,
    probes: Arc<dyn ProbeResults>,
    statuses: Option<Arc<dyn PodStatusReporter>>,
    volumes: Arc<dyn VolumeManager>,
    container_resources: Arc<dyn ContainerResources>,
    dynamic_resources: Option<Arc<dyn DynamicResources>>,
    config_objects: Arc<dyn ConfigObjects>,
    services: Arc<dyn Services>,
    service_accounts: Arc<dyn ServiceAccounts>,
}

impl CriRuntimeBuilder {
    pub(crate) fn new(runtime: Arc<dyn RuntimeService>, images: Arc<dyn ImageService>) -> Self {
        Self {
            runtime,
            images,
            node: NodeSettings::default(),
            image_pulls: ImagePullSettings::default(),
            credential_providers: Vec::new(),
            runtime_type: None,
            runtime_classes: Arc::new(BTreeMap::new()),
            exclusive_cpus: Arc::new(NoExclusiveCpus),
            container_log_links: None,
            crash_loop: (Duration::from_secs(10), Duration::from_secs(300)),
            clock: Clock::system(),
            recorder: Arc::new(LogEvents),
            node_recorder: Arc::new(LogEvents),
            probes: Arc::new(NoProbes),
            statuses: None,
            volumes: Arc::new(NoVolumes),
            container_resources: Arc::new(NoContainerResources),
            dynamic_resources: None,
            config_objects: Arc::new(NoConfigObjects),
            services: Arc::new(NoServices),
            service_accounts: Arc::new(NoServiceAccounts),
        }
    }

    /// Sets the folders, DNS, cgroups and facts of the node.
    pub fn node(mut self, node: NodeSettings) -> Self {
        self.node = node;
        self
    }

    /// The folder of the pods' files, `/var/lib/kubelet` by default: [`NodeSettings::root_dir`].
    pub fn root_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.node.root_dir = RootDir::new(dir);
        self
    }

    /// The folder of container logs, `/var/log/pods` by default: [`NodeSettings::pod_logs_dir`].
    pub fn pod_logs_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.node.pod_logs_dir = dir.into();
        self
    }

    /// How file work is done, on another thread by default: [`NodeSettings::disk`].
    pub fn disk(mut self, disk: Disk) -> Self {
        self.node.disk = disk;
        self
    }

    /// How images are pulled.
    pub fn image_pulls(mut self, settings: ImagePullSettings) -> Self {
        self.image_pulls = settings;
        self
    }

    /// Adds a credential provider plugin. For each image, all plugins that match it are called.
    pub fn credential_provider(mut self, provider: CredentialProvider) -> Self {
        self.credential_providers.push(provider);
        self
    }

    /// The service accounts of pods, for credential provider plugins with
    /// [`token_attributes`](CredentialProvider::token_attributes); none by default.
    pub fn service_accounts(mut self, accounts: Arc<dyn ServiceAccounts>) -> Self {
        self.service_accounts = accounts;
        self
    }

    /// The runtime's name, the first part of its container ids. Without it, [`build`](Self::build) requests it from the
    /// runtime.
    pub fn runtime_type(mut self, name: impl Into<String>) -> Self {
        self.runtime_type = Some(name.into());
        self
    }

    /// The RuntimeClasses that pods may use; none by default. A pod with a RuntimeClass that does not exist is refused.
    pub fn runtime_classes(mut self, classes: Arc<dyn RuntimeClasses>) -> Self {
        self.runtime_classes = classes;
        self
    }

    /// Knows which containers have CPUs of their own. A resize sets no CPU quota for these. By default, none have.
    pub fn exclusive_cpus(mut self, exclusive_cpus: Arc<dyn ExclusiveCpus>) -> Self {
        self.exclusive_cpus = exclusive_cpus;
        self
    }

    /// Creates a link to each container's log in this folder, usually `/var/log/containers`; no links by default. The
    /// folder is created with the first link.
    pub fn container_log_links(mut self, dir: impl Into<PathBuf>) -> Self {
        self.container_log_links = Some(dir.into());
        self
    }

    /// The first and the longest wait before a container that ended is started again: 10 s and 5 min
    /// (`crashLoopBackOff.maxContainerRestartPeriod`).
    pub fn crash_loop_back_off(mut self, initial: Duration, max: Duration) -> Self {
        self.crash_loop = (initial, max);
        self
    }

    /// The wall clock for comparisons with the runtime's timestamps.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The recorder of events.
    pub fn events(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// The recorder of events about the node: `MissingClusterDNS`.
    pub fn node_events(mut self, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        self.node_recorder = recorder;
        self
    }

    /// Gets a notification when a pod's sandbox is ready and its containers are next (`OnPodSandboxReady`), and when
    /// image pulls start and finish (`RecordImageStartedPulling`, `RecordImageFinishedPulling`). There is none by
    /// default. Then the pod's next status shows the sandbox, and the time of pulls counts as part of the pod's start
    /// latency.
    pub fn statuses(mut self, statuses: Arc<dyn PodStatusReporter>) -> Self {
        self.statuses = Some(statuses);
        self
    }

    /// The results of probes: a failed liveness or startup probe makes the manager kill the container.
    pub fn probes(mut self, probes: Arc<dyn ProbeResults>) -> Self {
        self.probes = probes;
        self
    }

    /// The paths of the pods' volumes.
    pub fn volumes(mut self, volumes: Arc<dyn VolumeManager>) -> Self {
        self.volumes = volumes;
        self
    }

    /// The devices, CPUs and memory of containers. By default, containers get none of their own.
    pub fn container_resources(mut self, resources: Arc<dyn ContainerResources>) -> Self {
        self.container_resources = resources;
        self
    }

    /// What prepares the claims of a pod before its sandbox is created. Without it, pods with claims run without their devices.
    pub fn dynamic_resources(mut self, claims: Arc<dyn DynamicResources>) -> Self {
        self.dynamic_resources = Some(claims);
        self
    }

    /// The source of config maps and secrets.
    pub fn config_objects(mut self, objects: Arc<dyn ConfigObjects>) -> Self {
        self.config_objects = objects;
        self
    }

    /// The services for the environment variables of containers; none by default.
    pub fn services(mut self, services: Arc<dyn Services>) -> Self {
        self.services = services;
        self
    }

    /// Builds the manager. If pods are put into cgroups, the manager uses the cgroup driver that the runtime reports
    /// (`RuntimeConfig`). Container ids begin with the runtime's name. Unless [`runtime_type`](Self::runtime_type) was
    /// set, the manager requests the name (`Version`). While the runtime is away or busy, it tries again, first after
    /// 100 ms and later every 5 s, without limit, because an agent may start before its runtime. For a limit, put a
    /// `tokio::time::timeout` around the call.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] lists all problems of the settings. [`Error::Runtime`] if the runtime answers with an
    /// error that is not transient.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn build(self) -> Result<CriRuntime> {
        let problems = self.problems();
        if !problems.is_empty() {
            return Err(Error::Misconfigured { problems });
        }
        let runtime: Arc<dyn RuntimeService> = Arc::new(Instrumented::new(self.runtime));
        let image_service: Arc<dyn ImageService> = Arc::new(Instrumented::new(self.images));
        let runtime_type = match self.runtime_type {
            Some(name) => name,
            None => ask_name(&*runtime).await?,
        };
        let missing = MissingCalls::default();
        let images_by_handler = self.image_pulls.runtime_class_in_image_cri_api;
        let mut node = self.node;
        node.cgroup_driver = cgroup_driver(&*runtime, &missing, node.cgroup_driver).await?;
        let images = ImageManager::new(ImageManagerParts {
            service: image_service.clone(),
            recorder: self.recorder.clone(),
            statuses: self.statuses.clone(),
            settings: self.image_pulls,
            providers: CredentialProviders::new(self.credential_providers, self.service_accounts),
            root_dir: &node.root_dir,
            disk: node.disk,
            clock: self.clock,
        })
        .await;
        Ok(CriRuntime {
            actuated: Actuated::default(),
            unfinished_starts: UnfinishedStarts::default(),
            pod_cgroups: None,
            lists: Lists::new(runtime.clone(), image_service.clone()),
            known_pods: Mutex::default(),
            runtime_type: runtime_type.into(),
            runtime,
            image_service,
            images,
            crash_loop: CrashLoopBackOff::new(self.crash_loop.0, self.crash_loop.1, self.clock),
            handlers: Mutex::new(None::<HashMap<_, _>>),
            user_namespaces: Default::default(),
            missing,
            cpu_times: Default::default(),
            log_watcher: Default::default(),
            node,
            runtime_classes: self.runtime_classes,
            exclusive_cpus: self.exclusive_cpus,
            images_by_handler,
            container_log_links: self.container_log_links,
            clock: self.clock,
            recorder: self.recorder,
            node_recorder: self.node_recorder,
            probes: self.probes,
            statuses: self.statuses,
            volumes: self.volumes,
            container_resources: self.container_resources,
            dynamic_resources: self.dynamic_resources,
            config_objects: self.config_objects,
            services: self.services,
            #[cfg(feature = "probes")]
            http: crate::probe::http::HttpClient::new(crate::probe::http::Redirects::Any),
        })
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut must = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        let (root, logs) = (self.node.root_dir.path(), &self.node.pod_logs_dir);
        must(root.is_absolute(), format!("root_dir {root:?} is not absolute"));
        must(
            logs.is_absolute(),
            format!("pod_logs_dir {logs:?} is not absolute"),
        );
        if let Some(links) = &self.container_log_links {
            must(
                links.is_absolute(),
                format!("container_log_links {links:?} is not absolute"),
            );
        }
        for problem in self
            .credential_providers
            .iter()
            .filter_map(CredentialProvider::problem)
        {
            must(false, problem);
        }
        let (initial, max) = self.crash_loop;
        must(
            !initial.is_zero() && initial <= max,
            format!(
                "crash_loop_back_off: the first wait {initial:?} must be greater than 0 and at most {max:?}"
            ),
        );
        if let Some(name) = &self.runtime_type {
            must(
                !name.is_empty() && !name.contains("://"),
                format!("runtime_type {name:?} cannot be part of a container id"),
            );
        }
        problems
    }
}

async fn ask_name(runtime: &dyn RuntimeService) -> Result<String> {
    let (mut wait, longest) = VERSION_WAITS;
    let mut logged = false;
    loop {
        // The version that a kubelet sends.
        let request = v1::VersionRequest {
            version: "0.1.0".to_owned(),
        };
        let error = match runtime.version(request).await {
            Ok(response) if !response.runtime_name.is_empty() => return Ok(response.runtime_name),
            Ok(_) => {
                let message = "the runtime has no name";
                kubelet_cri::Error::call(Code::Internal, "Version", "", message)
            }
            Err(error) => error,
        };
        // `Unknown` is how containerd answers while it starts: its server is not initialized yet.
        if !error.is_transient() && error.code() != Code::Unknown {
            return Err(Error::runtime("Version", error));
        }
        // An agent may start before its runtime, so the first failures are ordinary.
        match (logged, wait < longest) {
            (false, _) => tracing::info!(%error, "the runtime does not answer yet"),
            (true, true) => tracing::debug!(%error, "the runtime does not answer yet"),
            (true, false) => tracing::warn!(%error, "the runtime still does not answer"),
        }
        logged = true;
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(longest);
    }
}

/// The cgroup driver that the runtime reports, with the node's cgroup root; the node's driver if the runtime reports
/// none (`getCgroupDriverFromCRI`). Makes no call if pods are not put into cgroups.
async fn cgroup_driver(
    runtime: &dyn RuntimeService,
    missing: &MissingCalls,
    of_node: CgroupDriver,
) -> Result<CgroupDriver> {
    let (CgroupDriver::Cgroupfs { root } | CgroupDriver::Systemd { root }) = &of_node else {
        return Ok(of_node);
    };
    let mut tries = 1;
    let config = loop {
        let asked = missing.offered(
            "RuntimeConfig",
            runtime.runtime_config(v1::RuntimeConfigRequest {}),
        );
        match asked.await {
            Ok(config) => break config,
            // It has answered before, and is started again.
            Err(error) if error.is_transient() => tracing::info!(%error, "the runtime does not answer yet"),
            Err(error) if tries == RUNTIME_CONFIG_TRIES => {
                return Err(Error::runtime("RuntimeConfig", error));
            }
            Err(_) => tries += 1,
        }
        tokio::time::sleep(RUNTIME_CONFIG_WAIT).await;
    };
    if config.is_none() {
        // The first version of the kubelet that will not accept the runtime.
        metrics::gauge!("kubelet_cri_losing_support", "version" => "1.37.0").set(1.0);
        tracing::info!("the runtime has no RuntimeConfig: cgroupDriver of the configuration counts");
    }
    let Some(linux) = config.and_then(|config| config.linux) else {
        return Ok(of_node);
    };
    let root = root.clone();
    match v1::CgroupDriver::try_from(linux.cgroup_driver) {
        Ok(v1::CgroupDriver::Systemd) => Ok(CgroupDriver::Systemd { root }),
        Ok(v1::CgroupDriver::Cgroupfs) => Ok(CgroupDriver::Cgroupfs { root }),
        Err(_) => {
            let message = format!(
                "runtime returned an unknown cgroup driver {}",
                linux.cgroup_driver
            );
            Err(Error::runtime("RuntimeConfig", std::io::Error::other(message)))
        }
    }
}
