//! The assembly: the parts of a node agent, wired together and run as one.

mod builder;
mod collector;
mod explain;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::builder::KubeletBuilder;

use self::collector::Collector;
use self::explain::Explainer;
use crate::event::NodeEventRecorder;
use crate::pod_cache::PodCache;
use crate::pod_manager::PodManager;
use crate::pod_source::{PodUpdates, SourcesReady};
use crate::pod_workers::{PodWorkers, PodWorkersHandle};
use crate::runtime::{GcPolicy, Runtime};
use crate::runtime_state::RuntimeState;
use crate::sync_loop::{SyncLoop, SyncLoopMonitor};
use crate::sync_pod::RuntimePodSyncer;
use crate::{
    AllocationState, Error, PodExt as _, PodLifecycleEventGenerator, PodStatusManager, PodUid, ProbeManager,
    Result, Step,
};

/// A complete node agent over the traits of this crate. You bring the sources, the runtime, the PLEG and the status
/// manager; it adds the pod workers and the sync loop. Answers to the kubelet's `Kubelet`.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use kubelet_core::*;
/// # async fn example(
/// #     config: impl PodUpdates, runtime: Arc<dyn Runtime>, cache: PodCache,
/// #     pleg: impl PodLifecycleEventGenerator, statuses: impl PodStatusManager,
/// # ) -> Result<()> {
/// let kubelet = Kubelet::builder()
///     .pods(config) // the pod sources
///     .runtime(runtime) // runs the pods
///     .pleg(pleg, cache) // watches the runtime
///     .statuses(statuses) // reports their statuses
///     .root_dir("/var/lib/kubelet")
///     .build()?;
/// let shutdown = tokio_util::sync::CancellationToken::new();
/// kubelet.run(shutdown).await
/// # }
/// ```
pub struct Kubelet {
    updates: Box<dyn PodUpdates>,
    to_sync_loop: mpsc::Sender<crate::PodUpdate>,
    runtime: Arc<dyn Runtime>,
    runtime_state: RuntimeState,
    pleg: Box<dyn PodLifecycleEventGenerator>,
    statuses: Box<dyn PodStatusManager>,
    workers: PodWorkers,
    syncer: Arc<RuntimePodSyncer>,
    probes: Option<ProbeManager>,
    sync_loop: SyncLoop,
    gc_policy: GcPolicy,
    node_recorder: Arc<dyn NodeEventRecorder>,
    handle: KubeletHandle,
}

impl Kubelet {
    /// Returns a builder.
    pub fn builder() -> KubeletBuilder {
        KubeletBuilder::default()
    }

    /// A handle to query the agent and to end pods.
    pub fn handle(&self) -> KubeletHandle {
        self.handle.clone()
    }

    /// Runs the agent until `shutdown`. It then stops its parts in the order of data flow: first sources, sync loop,
    /// workers and probes (pods are recorded then), then the PLEG, and last the status manager, which sends what it
    /// still can. Containers keep running, as with the kubelet; to end them first, use [`KubeletHandle::end_pods`].
    ///
    /// All tasks have ended when it returns.
    ///
    /// # Errors
    ///
    /// When the merged sources fail, or one of the parts panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts all its tasks. Only statuses that were not sent yet are lost.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let [upper, pleg, statuses] = [(); 3].map(|()| CancellationToken::new());
        let mut upper_tasks: JoinSet<Result<()>> = JoinSet::new();
        let mut pleg_tasks: JoinSet<()> = JoinSet::new();
        let mut status_tasks: JoinSet<()> = JoinSet::new();

        status_tasks.spawn(self.statuses.run(statuses.clone()));
        pleg_tasks.spawn(self.pleg.run(pleg.clone()));
        pleg_tasks.spawn(self.runtime_state.run(self.runtime.clone(), pleg.clone()));
        let collector = Collector {
            runtime: self.runtime,
            workers: self.handle.workers.clone(),
            cache: self.handle.cache.clone(),
            sources: self.handle.sources.clone(),
            policy: self.gc_policy,
            events: self.node_recorder,
        };
        pleg_tasks.spawn(collector.run(pleg.clone()));
        let (workers, sync_loop, updates) = (self.workers, self.sync_loop, self.updates);
        // Each is spawned directly: a future inside another one takes its memory twice.
        upper_tasks.spawn(updates.run(self.to_sync_loop, upper.clone()));
        upper_tasks.spawn(workers.run(upper.clone()).map(Ok));
        if let Some(probes) = self.probes {
            upper_tasks.spawn(probes.run(upper.clone()).map(Ok));
        }
        upper_tasks.spawn(sync_loop.run(upper.clone()).map(Ok));

        let mut outcome = Ok(());
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                ended = upper_tasks.join_next() => match ended {
                    // When the sources end, their pods keep running.
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => { outcome = Err(error); break }
                    Some(Err(error)) => { outcome = Err(Error::runtime("task", error)); break }
                    None => break,
                },
                // The agent cannot work without them, and nothing else would report it.
                Some(Err(error)) = pleg_tasks.join_next() => {
                    outcome = Err(Error::runtime("task", error));
                    break;
                }
                Some(Err(error)) = status_tasks.join_next() => {
                    outcome = Err(Error::runtime("task", error));
                    break;
                }
            }
        }
        upper.cancel();
        join_all(&mut upper_tasks).await;
        self.syncer.save_all(&self.handle.pods.pods()).await;
        pleg.cancel();
        join_all(&mut pleg_tasks).await;
        statuses.cancel();
        join_all(&mut status_tasks).await;
        outcome
    }
}

async fn join_all<T: 'static>(tasks: &mut JoinSet<T>) {
    while tasks.join_next().await.is_some() {}
}

crate::impl_debug!(Kubelet: gc_policy);

/// Queries and controls a running [`Kubelet`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KubeletHandle {
    pods: PodManager,
    workers: PodWorkersHandle,
    cache: PodCache,
    sources: SourcesReady,
    runtime_state: RuntimeState,
    monitor: SyncLoopMonitor,
    resync_interval: Duration,
    explainer: Explainer,
    allocations: AllocationState,
}

impl KubeletHandle {
    /// The desired pods.
    pub fn pods(&self) -> &PodManager {
        &self.pods
    }

    /// The pods that hold resources, with what they were allocated, sorted by UID (`getAllocatedPods`). Pods that have ended
    /// are left out.
    pub fn active_pods(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.pods();
        pods.retain(|pod| {
            let uid = pod.uid();
            let terminal = || pod.is_terminal_phase() || self.explainer.statuses.is_reported_terminal(&uid);
            !self.workers.is_pod_known_terminated(&uid)
                && (self.workers.is_pod_termination_requested(&uid) || !terminal())
        });
        pods.sort_by_cached_key(|pod| pod.uid());
        let allocated = pods
            .iter()
            .map(|pod| self.allocations.update_pod_from_allocation(pod));
        allocated.collect()
    }

    /// The pod workers.
    pub fn workers(&self) -> &PodWorkersHandle {
        &self.workers
    }

    /// The latest runtime status of each pod.
    pub fn cache(&self) -> &PodCache {
        &self.cache
    }

    /// Which sources have reported.
    pub fn sources(&self) -> &SourcesReady {
        &self.sources
    }

    /// Whether the runtime is ready.
    pub fn runtime_state(&self) -> &RuntimeState {
        &self.runtime_state
    }

    /// Whether the sync loop makes progress, for a health check (`SyncLoopHealthCheck`).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it has made none for twice the resync interval, or two minutes if that is longer.
    pub fn sync_loop_healthy(&self) -> Result<()> {
        self.monitor.healthy(self.resync_interval)
    }

    /// The API status that was reported last for a pod (`GetPodStatus` of the status manager).
    pub fn pod_status(&self, uid: &PodUid) -> Option<Arc<k8s_openapi::api::core::v1::PodStatus>> {
        self.explainer.statuses.pod_status(uid)
    }

    /// Explains the state of a pod: what it has passed and what it waits for, in order.
    ///
    /// ```no_run
    /// # fn example(kubelet: kubelet_core::KubeletHandle) {
    /// for step in kubelet.explain(&"8f1c2d".into()) {
    ///     println!("{step}"); // listed by file; retried in 9.5s: … ; container web: CrashLoopBackOff: …
    /// }
    /// # }
    /// ```
    pub fn explain(&self, uid: &PodUid) -> Vec<Step> {
        self.explainer.explain(uid, self)
    }

    /// Which parts still hold state of a pod in memory. Empty soon after the pod is gone; useful to find leaks.
    pub fn keepers(&self, uid: &PodUid) -> Vec<&'static str> {
        let pods = &self.pods;
        let is_desired = pods.pod(uid).is_some() || pods.mirrors().iter().any(|pod| pod.uid() == *uid);
        let keepers = [
            ("PodManager", is_desired),
            ("PodWorkers", self.workers.knows(uid)),
            ("PodCache", self.cache.keeps(uid)),
            (
                "PodStatusManager",
                self.explainer.statuses.pod_status(uid).is_some(),
            ),
            (
                "StartFailures",
                self.explainer.start_failures.of_pod(uid).is_some(),
            ),
            ("AllocationState", self.allocations.keeps(uid.as_str())),
        ];
        let keeping = keepers.into_iter().filter(|(_, keeps)| *keeps);
        keeping.map(|(part, _)| part).collect()
    }

    /// Ends all pods, each within its own grace period or the given one if that is shorter. Returns when all their
    /// resources are released. The pods are not restarted. For an agent whose pods end with it.
    pub async fn end_pods(&self, grace_period: Option<Duration>) {
        self.workers.end_pods(self.pods.pods(), grace_period).await;
    }
}
