//! How a [`Kubelet`] is put together.

use std::fmt;
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
    Admission, AllocationManager, AllocationState, Checkpoints, Clock, Disk, Error, EventRecorder,
    InPlaceResize, Jitter, LogEvents, MirrorClient, MirrorPods, NoPodContainers, NoProbes, NoVolumes,
    NodeGetter, PlegHandle, PodAdmitHandler, PodContainerManager, PodLifecycleEventGenerator,
    PodStatusManager, ProbeManager, ProbeManagerConfig, ProbeResultCache, ProbeResults, Prober, Result,
    RootDir, VolumeManager,
};

/// Updates that may wait for the sync loop before the sources are held back (`PodConfig`'s channel).
const UPDATES_WAITING: usize = 50;

/// Gathers the parts of a [`Kubelet`].
#[derive(Default)]
pub struct KubeletBuilder {
    updates: Option<Box<dyn PodUpdates>>,
    runtime: Option<Arc<dyn Runtime>>,
    pleg: Option<(Box<dyn PodLifecycleEventGenerator>, PodCache)>,
    statuses: Option<Box<dyn PodStatusManager>>,
    recorder: Option<Arc<dyn EventRecorder>>,
    probes: Option<Arc<dyn ProbeResults>>,
    prober: Option<(Box<dyn Prober>, ProbeResultCache)>,
    volumes: Option<Arc<dyn VolumeManager>>,
    pod_containers: Option<Arc<dyn PodContainerManager>>,
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
    /// Whether the runtime can be worked with, once the agent runs: for those that are made before it and must know.
    pub fn runtime_state(&self) -> RuntimeState {
        self.runtime_state.clone()
    }

    /// Where pods come from: the merged sources. Required.
    pub fn pods(mut self, updates: impl PodUpdates) -> Self {
        self.updates = Some(Box::new(updates));
        self
    }

    /// What runs pods. Required.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Who watches the runtime, and the cache that it writes. Required.
    pub fn pleg(mut self, pleg: impl PodLifecycleEventGenerator, cache: PodCache) -> Self {
        self.pleg = Some((Box::new(pleg), cache));
        self
    }

    /// Who keeps and sends the pods' statuses. Required.
    pub fn statuses(mut self, statuses: impl PodStatusManager) -> Self {
        self.statuses = Some(Box::new(statuses));
        self
    }

    /// Who records events; by default they are logged.
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Who probes containers; by default nothing is probed, and a container with a readiness probe is never ready.
    /// `results` is where it is kept what was found: give it to the runtime too, which kills what does not live.
    pub fn prober(mut self, prober: impl Prober, results: ProbeResultCache) -> Self {
        self.prober = Some((Box::new(prober), results));
        self
    }

    /// What probes found that somebody else makes, in place of a [`prober`](Self::prober).
    pub fn probes(mut self, probes: Arc<dyn ProbeResults>) -> Self {
        self.probes = Some(probes);
        self
    }

    /// Who mounts volumes; by default a pod that asks for a volume waits with an error.
    pub fn volumes(mut self, volumes: Arc<dyn VolumeManager>) -> Self {
        self.volumes = Some(volumes);
        self
    }

    /// Who makes and removes the cgroups of pods; by default nobody: then they are the runtime's affair.
    pub fn pod_containers(mut self, manager: Arc<dyn PodContainerManager>) -> Self {
        self.pod_containers = Some(manager);
        self
    }

    /// Asks this handler whether a new pod may run, after those given before. By default every pod may.
    pub fn admission(mut self, handler: Arc<dyn PodAdmitHandler>) -> Self {
        self.admission = self.admission.with(handler);
        self
    }

    /// The node that the agent runs on. A new pod must fit it, in resources, labels, name, ports and taints; critical
    /// pods are made room for (see [`PredicateAdmitHandler`]). Mirror pods belong to it.
    pub fn node(mut self, node: Arc<dyn NodeGetter>) -> Self {
        self.node = Some(node);
        self
    }

    /// Who makes the mirrors of static pods on an API server; without, there are none. Needs [`node`](Self::node).
    pub fn mirrors(mut self, client: Arc<dyn MirrorClient>) -> Self {
        self.mirrors = Some(client);
        self
    }

    /// Where what belongs to pods is kept; `/var/lib/kubelet` by default. Must be absolute.
    pub fn root_dir(mut self, root_dir: impl Into<std::path::PathBuf>) -> Self {
        self.root_dir = RootDir::new(root_dir);
        self
    }

    /// Whether what is known of each pod is kept in its folder below [`root_dir`](Self::root_dir), so that a restart
    /// of the agent shows nowhere: its last status, what its probes found, what it waits for after failures, and which
    /// of its containers that must not run twice were started, written before they are. On by default.
    ///
    /// Each change is a small write to the disk. Without it a restart of the agent begins anew what waits and what is
    /// probed, pods of files have no past, and a container that runs once is started again if the runtime loses it
    /// before its source was told that it runs.
    pub fn checkpoints(mut self, on: bool) -> Self {
        self.no_checkpoints = !on;
        self
    }

    /// Who works on files; another thread by default.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// What time it is, for active deadlines and initial delays of probes: the clock of the runtime's timestamps;
    /// the operating system's by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// What of a pod may be resized in place. Whether the runtime can do it is for [the runtime](Runtime::refuses_resize) to
    /// say.
    pub fn in_place_resize(mut self, settings: InPlaceResize) -> Self {
        self.in_place_resize = settings;
        self
    }

    /// The features that the node declares: a new pod that needs another one is rejected, after all other handlers were asked,
    /// and a pod whose change needs another one is told of in an event. By default nobody looks, as in a kubelet with
    /// `NodeDeclaredFeatures` turned off.
    pub fn declared_features(mut self, features: DeclaredFeatures) -> Self {
        self.declared_features = Some(features);
        self
    }

    /// How often pods are looked at again.
    pub fn workers(mut self, config: PodWorkersConfig) -> Self {
        self.workers = config;
        self
    }

    /// How often the runtime is asked whether it and its network are ready, while they are: 5 s by default, as in the
    /// kubelet. While they are not it is 5 s at most. A runtime counts as down if it did not say that it is ready for 30 s, or
    /// twice this period if that is longer. For runtimes that have nothing new to tell for long, and nodes that are to sleep.
    pub fn runtime_status_period(mut self, period: Duration) -> Self {
        self.runtime_status_period = Some(period);
        self
    }

    /// Which dead containers are kept.
    pub fn gc_policy(mut self, policy: GcPolicy) -> Self {
        self.gc_policy = policy;
        self
    }

    /// Where randomness comes from: a seed makes a run repeatable.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Puts the parts together. Nothing runs yet.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] with all that is missing or cannot work.
    pub fn build(self) -> Result<Kubelet> {
        let mut problems = self.problems();
        let (Some(updates), Some(runtime), Some((pleg, cache)), Some(statuses)) =
            (self.updates, self.runtime, self.pleg, self.statuses)
        else {
            return Err(Error::Misconfigured { problems });
        };
        let names = updates.sources();
        if names.is_empty() {
            problems.push("no pod source: nothing would ever run".to_owned());
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
            handle,
        })
    }

    /// All that is wrong with what was given.
    fn problems(&self) -> Vec<String> {
        let missing = [
            (self.updates.is_none(), "no pods: say where they come from"),
            (self.runtime.is_none(), "no runtime: say what runs pods"),
            (self.pleg.is_none(), "no PLEG: say who watches the runtime"),
            (
                self.statuses.is_none(),
                "no status manager: say who keeps the pods' statuses",
            ),
            (
                self.mirrors.is_some() && self.node.is_none(),
                "mirror pods without a node: say which node they belong to",
            ),
            (
                !self.root_dir.path().is_absolute(),
                "the root dir is not an absolute path",
            ),
            (
                self.prober.is_some() && self.probes.is_some(),
                "both a prober and results of somebody else's probes",
            ),
            (
                self.workers.resync_interval.is_zero(),
                "the resync interval is zero",
            ),
            (
                self.runtime_status_period.is_some_and(|period| period.is_zero()),
                "the period of the runtime's status is zero",
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

impl fmt::Debug for KubeletBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletBuilder")
            .field("root_dir", &self.root_dir)
            .finish_non_exhaustive()
    }
}
