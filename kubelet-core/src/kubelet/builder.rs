//! Builds a [`Kubelet`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::explain::Explainer;
use super::{Kubelet, KubeletHandle};
use crate::admission::{CriticalPodAdmissionHandler, DeclaredFeatures, PredicateAdmitHandler};
use crate::pod_cache::PodCache;
use crate::pod_manager::PodManager;
use crate::pod_source::{PodUpdates, SourcesReady};
use crate::pod_workers::{PodWorkers, PodWorkersConfig};
use crate::runtime::{GcPolicy, Runtime};
use crate::runtime_state::RuntimeState;
use crate::start_failures::StartFailures;
use crate::sync_loop::{SyncLoop, SyncLoopMonitor};
use crate::sync_pod::RuntimePodSyncer;
use crate::{
    Admission, AllocationManager, AllocationState, Checkpoints, Clock, Disk, DynamicResources, Error,
    EventRecorder, InPlaceResize, Jitter, LogEvents, MirrorClient, MirrorPods, NoPodContainers, NoProbes,
    NoVolumes, NodeEventRecorder, NodeGetter, PlegHandle, PodAdmitHandler, PodContainerManager,
    PodLifecycleEventGenerator, PodStatusManager, ProbeManager, ProbeManagerConfig, ProbeResultCache,
    ProbeResults, Prober, ResourceHealth, ResourceUpdates, Result, RootDir, VolumeManager,
};

/// The capacity of the channel between the sources and the sync loop (`PodConfig`'s channel).
const UPDATES_WAITING: usize = 50;

/// Gathers the parts of a [`Kubelet`].
#[derive(Default)]
pub struct KubeletBuilder {
    updates: Option<Box<dyn PodUpdates>>,
    runtime: Option<Arc<dyn Runtime>>,
    pleg: Option<(Box<dyn PodLifecycleEventGenerator>, PodCache)>,
    statuses: Option<Box<dyn PodStatusManager>>,
    recorder: Option<Arc<dyn EventRecorder>>,
    node_recorder: Option<Arc<dyn NodeEventRecorder>>,
    probes: Option<Arc<dyn ProbeResults>>,
    prober: Option<(Box<dyn Prober>, ProbeResultCache)>,
    volumes: Option<Arc<dyn VolumeManager>>,
    pod_containers: Option<Arc<dyn PodContainerManager>>,
    dynamic_resources: Option<Arc<dyn DynamicResources>>,
    resource_health: Vec<Arc<dyn ResourceHealth>>,
    resource_updates: Option<ResourceUpdates>,
    node: Option<Arc<dyn NodeGetter>>,
    admission: Admission,
    mirrors: Option<Arc<dyn MirrorClient>>,
    no_checkpoints: bool,
    root_dir: RootDir,
    disk: Disk,
    clock: Clock,
    workers: PodWorkersConfig,
    gc_policy: GcPolicy,
    jitter: Option<Jitter>,
    in_place_resize: InPlaceResize,
    declared_features: Option<DeclaredFeatures>,
    runtime_state: RuntimeState,
    runtime_status_period: Option<Duration>,
}

impl KubeletBuilder {
    /// The state of the runtime while the agent runs, for parts that are created before the agent.
    pub fn runtime_state(&self) -> RuntimeState {
        self.runtime_state.clone()
    }

    /// The merged pod sources. Required.
    pub fn pods(mut self, updates: impl PodUpdates) -> Self {
        self.updates = Some(Box::new(updates));
        self
    }

    /// The runtime that runs pods. Required.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The PLEG that watches the runtime, and the cache that it writes. Required.
    pub fn pleg(mut self, pleg: impl PodLifecycleEventGenerator, cache: PodCache) -> Self {
        self.pleg = Some((Box::new(pleg), cache));
        self
    }

    /// The status manager. Required.
    pub fn statuses(mut self, statuses: impl PodStatusManager) -> Self {
        self.statuses = Some(Box::new(statuses));
        self
    }

    /// The event recorder. By default, events are logged.
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The recorder of events about the node: `ContainerGCFailed`. By default, they are logged.
    pub fn node_recorder(mut self, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        self.node_recorder = Some(recorder);
        self
    }

    /// Probes containers. By default nothing is probed, and a container with a readiness probe is never ready. The
    /// results are written to `results`: give them to the runtime as well, which kills containers that fail their
    /// liveness probe.
    pub fn prober(mut self, prober: impl Prober, results: ProbeResultCache) -> Self {
        self.prober = Some((Box::new(prober), results));
        self
    }

    /// Results of probes that another part makes, instead of a [`prober`](Self::prober).
    pub fn probes(mut self, probes: Arc<dyn ProbeResults>) -> Self {
        self.probes = Some(probes);
        self
    }

    /// Mounts volumes. By default, a pod that needs a volume waits with an error.
    pub fn volumes(mut self, volumes: Arc<dyn VolumeManager>) -> Self {
        self.volumes = Some(volumes);
        self
    }

    /// Creates and removes the cgroups of pods. By default, the agent leaves this to the runtime.
    pub fn pod_containers(mut self, manager: Arc<dyn PodContainerManager>) -> Self {
        self.pod_containers = Some(manager);
        self
    }

    /// What unprepares the claims of pods whose containers have stopped. The runtime prepares them: give it the same.
    pub fn dynamic_resources(mut self, claims: Arc<dyn DynamicResources>) -> Self {
        self.dynamic_resources = Some(claims);
        self
    }

    /// Adds one that knows how the devices of containers are, called after those added before. By default, statuses do not contain
    /// this.
    pub fn resource_health(mut self, health: Arc<dyn ResourceHealth>) -> Self {
        self.resource_health.push(health);
        self
    }

    /// Where the parts with devices report the pods whose health changed. These are synced at once.
    pub fn resource_updates(mut self, updates: ResourceUpdates) -> Self {
        self.resource_updates = Some(updates);
        self
    }

    /// Adds an admission handler, called after those added before. By default, every pod is admitted.
    pub fn admission(mut self, handler: Arc<dyn PodAdmitHandler>) -> Self {
        self.admission = self.admission.with(handler);
        self
    }

    /// The node that the agent runs on. A new pod must fit it: resources, labels, name, ports and taints. Critical pods
    /// preempt others (see [`PredicateAdmitHandler`]). The node owns the mirror pods.
    pub fn node(mut self, node: Arc<dyn NodeGetter>) -> Self {
        self.node = Some(node);
        self
    }

    /// Creates mirror pods on an API server. By default there are none. Needs [`node`](Self::node).
    pub fn mirrors(mut self, client: Arc<dyn MirrorClient>) -> Self {
        self.mirrors = Some(client);
        self
    }

    /// The folder for pod data; `/var/lib/kubelet` by default. Must be absolute.
    pub fn root_dir(mut self, root_dir: impl Into<std::path::PathBuf>) -> Self {
        self.root_dir = RootDir::new(root_dir);
        self
    }

    /// Whether state of each pod is kept in its folder below [`root_dir`](Self::root_dir), so that a restart of the
    /// agent is not visible: the last status, results of probes, back-offs, and the starts of containers that must not
    /// run twice (written before they start). On by default.
    ///
    /// Each change is a small write to the disk. Without it, a restart of the agent resets back-offs and probes, pods
    /// from files lose their history, and a container that must run once is started again if the runtime loses it
    /// before its source has its status.
    pub fn checkpoints(mut self, on: bool) -> Self {
        self.no_checkpoints = !on;
        self
    }

    /// Which thread does file work; by default another thread.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// The wall clock for active deadlines and initial delays of probes. It must be the clock of the runtime's
    /// timestamps; by default the operating system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Which resources of a pod can be resized in place. Whether the runtime supports a resize is up to [the
    /// runtime](Runtime::refuses_resize).
    pub fn in_place_resize(mut self, settings: InPlaceResize) -> Self {
        self.in_place_resize = settings;
        self
    }

    /// The features that the node declares. A new pod that needs another feature is rejected, after all other admission
    /// handlers. A pod update that needs another feature causes an event. By default features are not checked, as in a
    /// kubelet with `NodeDeclaredFeatures` turned off.
    pub fn declared_features(mut self, features: DeclaredFeatures) -> Self {
        self.declared_features = Some(features);
        self
    }

    /// The period after which a pod is synced again without a change.
    pub fn workers(mut self, config: PodWorkersConfig) -> Self {
        self.workers = config;
        self
    }

    /// How often the runtime is asked whether it and its network are ready, while they are: 5 s by default, as in the
    /// kubelet. While they are not, at most every 5 s. The runtime counts as down if it was not ready for 30 s, or for
    /// twice this period if that is longer. Use a long period for runtimes whose state seldom changes and for nodes
    /// that save power.
    pub fn runtime_status_period(mut self, period: Duration) -> Self {
        self.runtime_status_period = Some(period);
        self
    }

    /// Which dead containers are kept.
    pub fn gc_policy(mut self, policy: GcPolicy) -> Self {
        self.gc_policy = policy;
        self
    }

    /// The source of randomness. A fixed seed makes a run repeatable.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Builds the agent. Nothing runs yet.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] with all missing and invalid settings.
    pub fn build(self) -> Result<Kubelet> {
        let mut problems = self.problems();
        let (Some(updates), Some(runtime), Some((pleg, cache)), Some(statuses)) =
            (self.updates, self.runtime, self.pleg, self.statuses)
        else {
            return Err(Error::Misconfigured { problems });
        };
        let names = updates.sources();
        if names.is_empty() {
            problems.push("no pod sources".to_owned());
        }
        let mut seen = std::collections::HashSet::new();
        problems.extend(
            names
                .iter()
                .filter(|name| !seen.insert(*name))
                .map(|name| format!("two pod sources named {name:?}")),
        );
        if !problems.is_empty() {
            return Err(Error::Misconfigured { problems });
        }

        let (to_sync_loop, received) = mpsc::channel(UPDATES_WAITING);
        let recorder = self.recorder.unwrap_or_else(|| Arc::new(LogEvents));
        let pleg_handle: Arc<dyn PlegHandle> = pleg.handle();
        let runtime_state = self.runtime_state;
        runtime_state.add_pleg(pleg_handle.clone());
        if let Some(period) = self.runtime_status_period {
            runtime_state.set_period(period);
        }
        let start_failures = StartFailures::new();
        let jitter = self.jitter.unwrap_or_default();
        let mut results = self.probes.unwrap_or_else(|| Arc::new(NoProbes));
        let probes = self.prober.map(|(prober, found)| {
            results = Arc::new(found.clone());
            let config = ProbeManagerConfig {
                clock: self.clock,
                jitter: jitter.clone(),
                recorder: recorder.clone(),
            };
            ProbeManager::new(prober, found, statuses.reporter(), config)
        });
        let prober = probes.as_ref().map(ProbeManager::handle);
        let checkpoints =
            (!self.no_checkpoints).then(|| Checkpoints::new(self.root_dir.clone(), self.disk, self.clock));
        let mirrors = match (self.mirrors, &self.node) {
            (Some(client), Some(node)) => MirrorPods::new(client, node.clone()),
            _ => MirrorPods::default(),
        };
        let pod_containers = self.pod_containers.unwrap_or_else(|| Arc::new(NoPodContainers));
        let volumes = self.volumes.unwrap_or_else(|| Arc::new(NoVolumes));
        let allocations = AllocationState::new(self.in_place_resize);
        let syncer = RuntimePodSyncer {
            runtime: runtime.clone(),
            runtime_state: runtime_state.clone(),
            statuses: statuses.reporter(),
            start_failures: start_failures.clone(),
            probes: results.clone(),
            prober: prober.clone(),
            volumes: volumes.clone(),
            pod_containers: pod_containers.clone(),
            dynamic_resources: self.dynamic_resources,
            resource_health: self.resource_health,
            recorder: recorder.clone(),
            pleg: pleg_handle.clone(),
            root_dir: self.root_dir.clone(),
            disk: self.disk,
            clock: self.clock,
            checkpoints: checkpoints.clone(),
            mirrors: mirrors.clone(),
            allocations: allocations.clone(),
        };
        let syncer = Arc::new(syncer);
        let resync_interval = self.workers.resync_interval;
        let workers = PodWorkers::new(syncer.clone(), cache.clone(), self.workers, jitter)
            .with_pleg(pleg_handle.clone())
            .with_recorder(recorder.clone())
            .with_allocations(allocations.clone());
        let mut admission = self.admission;
        if let Some(node) = self.node {
            let preemption = CriticalPodAdmissionHandler::new(workers.handle(), recorder.clone());
            let predicates = PredicateAdmitHandler::new(node).with_failure_handler(Arc::new(preemption));
            admission = admission.with(Arc::new(predicates));
        }
        if let Some(features) = &self.declared_features {
            admission = admission.with(Arc::new(features.clone()));
        }
        let handle = KubeletHandle {
            pods: PodManager::new(),
            workers: workers.handle(),
            cache: cache.clone(),
            sources: SourcesReady::new(names),
            runtime_state: runtime_state.clone(),
            monitor: SyncLoopMonitor::default(),
            resync_interval,
            explainer: Explainer {
                statuses: statuses.reporter(),
                start_failures: start_failures.clone(),
                probes: results.clone(),
                clock: self.clock,
            },
            allocations: allocations.clone(),
        };
        let allocations = AllocationManager::new(
            allocations,
            runtime.clone(),
            admission,
            statuses.reporter(),
            recorder.clone(),
            handle.pods.clone(),
        );
        let sync_loop = SyncLoop {
            updates: received,
            events: pleg_handle.subscribe(),
            prober,
            probe_updates: probes.as_ref().map(ProbeManager::updates),
            resource_updates: self.resource_updates,
            sources: handle.sources.clone(),
            pods: handle.pods.clone(),
            workers: handle.workers.clone(),
            cache,
            runtime: runtime.clone(),
            runtime_state: runtime_state.clone(),
            statuses: statuses.reporter(),
            start_failures,
            root_dir: self.root_dir,
            disk: self.disk,
            pod_containers,
            volumes,
            mirrors,
            allocations,
            declared_features: self.declared_features,
            checkpoints,
            recorder,
            max_per_pod_container: self.gc_policy.max_per_pod_container,
            monitor: handle.monitor.clone(),
        };
        Ok(Kubelet {
            updates,
            to_sync_loop,
            runtime,
            runtime_state,
            pleg,
            statuses,
            workers,
            syncer,
            probes,
            sync_loop,
            gc_policy: self.gc_policy,
            node_recorder: self.node_recorder.unwrap_or_else(|| Arc::new(LogEvents)),
            handle,
        })
    }

    /// All problems of the settings.
    fn problems(&self) -> Vec<String> {
        let missing = [
            (self.updates.is_none(), "no pod sources: call `pods`"),
            (self.runtime.is_none(), "no runtime: call `runtime`"),
            (self.pleg.is_none(), "no PLEG: call `pleg`"),
            (self.statuses.is_none(), "no status manager: call `statuses`"),
            (
                self.mirrors.is_some() && self.node.is_none(),
                "mirror pods need a node: call `node`",
            ),
            (
                !self.root_dir.path().is_absolute(),
                "the root directory is not an absolute path",
            ),
            (
                self.prober.is_some() && self.probes.is_some(),
                "both `prober` and `probes` are set",
            ),
            (
                self.workers.resync_interval.is_zero(),
                "the resync interval is zero",
            ),
            (
                self.runtime_status_period.is_some_and(|period| period.is_zero()),
                "the runtime status period is zero",
            ),
            (
                self.workers.back_off_period.is_zero(),
                "the back-off period is zero",
            ),
        ];
        missing
            .into_iter()
            .filter(|(wrong, _)| *wrong)
            .map(|(_, problem)| problem.to_owned())
            .collect()
    }
}

crate::impl_debug!(KubeletBuilder: root_dir);
