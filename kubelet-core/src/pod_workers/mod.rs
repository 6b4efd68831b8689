//! The pod workers: one state machine per pod UID, sync → terminating → terminated.

mod explain;
mod kill_now;
mod record;
mod registry;
#[cfg(test)]
mod tests;
mod turns;
mod update;

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use record::PodWorkerState;
use registry::{Ended, Registry, Work};
pub use update::{KillPod, UpdatePod};

use crate::changes::Changes;
use crate::pod_cache::PodCache;
use crate::pod_syncer::{PodSyncer, SyncOutcome};
use crate::runtime::{PodStateProvider, PodStatus};
use crate::{
    AllocationState, Error, Event, EventRecorder, EventType, Jitter, LogEvents, PlegHandle, PodExt, PodKey,
    PodUid, Result,
};
use update::Target;

/// How often the workers sync pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodWorkersConfig {
    /// A healthy pod is synced again after this time, plus up to half of it (`syncFrequency`, 1 min).
    pub resync_interval: Duration,
    /// A pod whose sync failed is retried after this time, plus up to half of it (`backOffPeriod`, 10 s).
    pub back_off_period: Duration,
}

impl Default for PodWorkersConfig {
    fn default() -> Self {
        Self {
            resync_interval: Duration::from_secs(60),
            back_off_period: Duration::from_secs(10),
        }
    }
}

/// What [`PodWorkersHandle::sync_known_pods`] returns of a pod (`PodWorkerSync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodWorkerSync {
    /// The state of its worker.
    pub state: PodWorkerState,
    /// It is not a desired pod.
    pub orphan: bool,
    /// Its spec is known. Otherwise only the runtime knows the pod.
    pub has_config: bool,
    /// Its spec is known, and it is a static pod.
    pub is_static: bool,
}

/// Runs a worker for each pod: one sync at a time per pod, all pods in parallel. Answers to the kubelet's `podWorkers`.
///
/// * While a sync runs, only the newest update is kept. There is no queue that can overflow: a pod either has work or
///   has none.
/// * A termination cancels a running sync. Only a shorter grace period interrupts a termination.
/// * A sync starts once the [`PodCache`] has a status newer than the last sync.
/// * An idle pod has no task.
/// * Static pods start after the first list of the runtime's pods was read into the [`PodCache`]: an earlier version of a
///   static pod, of another UID, may still run. It ends first.
pub struct PodWorkers {
    shared: Arc<Shared>,
    syncer: Arc<dyn PodSyncer>,
    recorder: Arc<dyn EventRecorder>,
    pleg: Option<Arc<dyn PlegHandle>>,
}

struct Shared {
    registry: Mutex<Registry>,
    cache: PodCache,
    allocations: OnceLock<AllocationState>,
    changed: Notify,
    /// A sync has ended, or the workers have stopped.
    completed: Notify,
}

impl PodWorkers {
    /// Workers that do their work through `syncer` and wait for statuses in `cache`.
    pub fn new(
        syncer: Arc<dyn PodSyncer>,
        cache: PodCache,
        config: PodWorkersConfig,
        jitter: Jitter,
    ) -> Self {
        let registry = Mutex::new(Registry::new(config, jitter));
        Self {
            shared: Arc::new(Shared {
                registry,
                cache,
                allocations: OnceLock::new(),
                changed: Notify::new(),
                completed: Notify::new(),
            }),
            syncer,
            recorder: Arc::new(LogEvents),
            pleg: None,
        }
    }

    /// Asks this PLEG to relist a pod whose worker waits for a newer status, instead of waiting for the next periodic
    /// relist.
    pub fn with_pleg(mut self, pleg: Arc<dyn PlegHandle>) -> Self {
        self.pleg = Some(pleg);
        self
    }

    /// Records `FailedSync` events here; by default they are logged.
    pub fn with_recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Syncs pods with their allocations, instead of the resources of their specs. Only the first call has an effect.
    pub fn with_allocations(self, allocations: AllocationState) -> Self {
        self.shared.allocations.get_or_init(|| allocations);
        self
    }

    /// The handle for other parts.
    pub fn handle(&self) -> PodWorkersHandle {
        PodWorkersHandle {
            shared: self.shared.clone(),
        }
    }

    /// Runs until `shutdown`. Running syncs are cancelled then, and containers keep running, as with the kubelet. Every
    /// task has ended when it returns.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut running = JoinSet::new();
        let mut of_task = HashMap::new();
        let mut first_list = pin!(self.first_list());
        let mut awaits_first_list = true;
        loop {
            // First, so that a stream of completions cannot delay the timers.
            self.shared.registry.lock().fire_timers(Instant::now());
            self.dispatch(&mut running, &mut of_task);
            self.shared.completed.notify_waiters();
            let timer = self.shared.registry.lock().next_timer();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = running.join_next_with_id() => self.complete(ended, &mut of_task),
                () = self.shared.changed.notified() => {}
                () = sleep_until(timer) => {}
                () = &mut first_list, if awaits_first_list => {
                    awaits_first_list = false;
                    let runs = self.shared.cache.running_pods();
                    self.shared.registry.lock().first_list_was_read(&runs, Instant::now());
                }
            }
        }
        running.shutdown().await;
    }

    /// Waits until the runtime's pods were listed and their statuses read. A runtime that lists pods and does not return
    /// their statuses delays static pods for [`FIRST_STATUSES_DEADLINE`] only.
    async fn first_list(&self) {
        let cache = &self.shared.cache;
        cache.listed().await;
        let _ = tokio::time::timeout(FIRST_STATUSES_DEADLINE, cache.listed_and_read()).await;
    }

    fn dispatch(&self, running: &mut JoinSet<Ended>, of_task: &mut HashMap<Id, Task>) {
        loop {
            let Some(work) = self.shared.registry.lock().next(Instant::now()) else {
                return;
            };
            let task = Task {
                uid: work.uid.clone(),
                state: work.state,
            };
            let worker = Worker {
                cache: self.shared.cache.clone(),
                syncer: self.syncer.clone(),
                recorder: self.recorder.clone(),
                pleg: self.pleg.clone(),
            };
            let span = tracing::info_span!("pod", pod = %work.key(), uid = %work.uid);
            let handle = running.spawn(async move { worker.work(work).await }.instrument(span));
            of_task.insert(handle.id(), task);
        }
    }

    fn complete(&self, ended: Result<(Id, Ended), JoinError>, of_task: &mut HashMap<Id, Task>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(Task { uid, state }) = of_task.remove(&id) else {
            return;
        };
        let ended = match ended {
            Ok((_, ended)) => ended,
            Err(error) => Ended {
                state,
                result: Err(Error::runtime_pod("sync", &uid, error)),
                look_again_at: None,
            },
        };
        match &ended.result {
            Ok(_) | Err(Error::Cancelled | Error::BackOff { .. }) => {}
            Err(error) => tracing::error!(%uid, ?state, "cannot sync a pod, will retry: {error}"),
        }
        self.shared.registry.lock().complete(&uid, ended, Instant::now());
    }
}

impl Drop for PodWorkers {
    fn drop(&mut self) {
        self.shared.registry.lock().close();
        self.shared.completed.notify_waiters();
    }
}

crate::impl_debug!(PodWorkers);

struct Task {
    uid: PodUid,
    state: PodWorkerState,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// How long a termination waits for a newer status before it continues with the known one.
const TERMINATING_STATUS_DEADLINE: Duration = Duration::from_secs(10);

/// How long static pods wait at most, after the first list of the runtime's pods, for the statuses of these pods.
const FIRST_STATUSES_DEADLINE: Duration = Duration::from_secs(10);

/// The resolution of tokio's timers.
const CLOCK_TICK: Duration = Duration::from_millis(1);

/// The input of one sync, which is a task.
struct Worker {
    cache: PodCache,
    syncer: Arc<dyn PodSyncer>,
    recorder: Arc<dyn EventRecorder>,
    pleg: Option<Arc<dyn PlegHandle>>,
}

impl Worker {
    async fn work(&self, work: Work) -> Ended {
        let (started, state) = (work.updated_at, work.state);
        let pod = work
            .request
            .target
            .pod()
            .filter(|_| state == PodWorkerState::Sync)
            .cloned();
        let operation = match (work.state, work.request.update_type) {
            (PodWorkerState::Terminated, _) => "terminated",
            (PodWorkerState::Terminating, _) => "kill",
            (PodWorkerState::Sync, crate::SyncPodType::Create) => "create",
            (PodWorkerState::Sync, crate::SyncPodType::Update) => "update",
            (PodWorkerState::Sync, _) => "sync",
        };
        let cancel = work.cancel.clone();
        let result = tokio::select! {
            biased;
            result = self.act(work) => result,
            () = cancel.cancelled() => Err(Error::Cancelled),
        };
        if let Some(started) = started {
            metrics::histogram!("kubelet_pod_worker_duration_seconds", "operation_type" => operation)
                .record(started.elapsed());
        }
        let look_again_at = pod.and_then(|pod| self.syncer.look_again_at(&pod));
        Ended {
            state,
            result,
            look_again_at,
        }
    }

    async fn act(&self, work: Work) -> Result<SyncOutcome> {
        let pod = match &work.request.target {
            Target::Runtime(running) => {
                self.syncer.sync_terminating_runtime_pod(running).await?;
                return Ok(SyncOutcome::default());
            }
            Target::Pod(pod) => pod,
        };
        match work.state {
            PodWorkerState::Sync => {
                let status = self.status(&work).await.inspect_err(|error| {
                    self.recorder.record(Event::about(
                        pod,
                        EventType::Warning,
                        "FailedSync",
                        format!("error determining status: {error}"),
                    ));
                })?;
                let mirror = work.request.mirror.as_ref();
                self.syncer
                    .sync_pod(work.request.update_type, pod, mirror, &status)
                    .await
            }
            PodWorkerState::Terminating => {
                let status = self.last_status(&work, pod.key()).await;
                let status_fn = work.status_fn.as_ref();
                self.syncer
                    .sync_terminating_pod(pod, &status, work.grace_period, status_fn)
                    .await?;
                Ok(SyncOutcome::default())
            }
            PodWorkerState::Terminated => {
                let status = self.last_status(&work, pod.key()).await;
                self.syncer.sync_terminated_pod(pod, &status).await?;
                Ok(SyncOutcome::default())
            }
        }
    }

    /// Waits for a status that is newer than the last sync.
    async fn status(&self, work: &Work) -> Result<Arc<PodStatus>> {
        if let (Some(pleg), Some(time)) = (&self.pleg, work.newer_than)
            && self
                .cache
                .observed_at(&work.uid)
                .is_none_or(|observed| observed <= time)
        {
            crate::explain::count_deferral("status");
            // A list that starts in this moment would not count as newer: the clock may be coarse, or virtual.
            while Instant::now() <= time {
                tokio::time::sleep(CLOCK_TICK).await;
            }
            pleg.request_relist(&work.uid);
        }
        match work.newer_than {
            Some(time) => self.cache.get_newer_than(&work.uid, time).await,
            None => self.cache.get_observed(&work.uid).await,
        }
    }

    /// For a pod that is ending: a newer status, if there is one in time. A pod whose status cannot be read must still
    /// end.
    async fn last_status(&self, work: &Work, key: PodKey) -> Arc<PodStatus> {
        match tokio::time::timeout(TERMINATING_STATUS_DEADLINE, self.status(work)).await {
            Ok(Ok(status)) => status,
            Ok(Err(_)) | Err(_) => self
                .cache
                .get(&work.uid)
                .unwrap_or_else(|_| Arc::new(PodStatus::empty(work.uid.clone(), key, Instant::now()))),
        }
    }
}

impl Work {
    fn key(&self) -> PodKey {
        match &self.request.target {
            Target::Pod(pod) => pod.key(),
            Target::Runtime(running) => running.key.clone(),
        }
    }
}

/// Updates and queries the workers. Clones share the same workers; no call waits.
#[derive(Clone)]
pub struct PodWorkersHandle {
    shared: Arc<Shared>,
}

impl PodWorkersHandle {
    /// Adds, updates or ends a pod (`UpdatePod`). Impossible updates are ignored: a sync of a finished pod, or a sync
    /// of a pod that only the runtime knows.
    pub fn update_pod(&self, mut update: UpdatePod) {
        if let (Some(allocations), Target::Pod(pod)) = (self.shared.allocations.get(), &mut update.target) {
            *pod = allocations.update_pod_from_allocation(pod);
        }
        let cache = &self.shared.cache;
        // A pod that was not observed yet has an empty status, and may be running.
        let over = |uid: &PodUid| {
            cache.observed_at(uid)?;
            cache.get(uid).ok().map(|status| !status.is_running())
        };
        {
            let (mut registry, now) = (self.shared.registry.lock(), Instant::now());
            if let Target::Pod(pod) = &update.target
                && pod.is_static()
                && registry.record(&pod.uid()).is_none()
            {
                let (key, uid) = (pod.key(), pod.uid());
                registry.let_earlier_pods_end(&key, &uid, &cache.running_pods(), now);
            }
            registry.update(update, now, over);
        }
        self.shared.changed.notify_one();
    }

    /// Stores the source's current version of the pod without a sync; the next sync uses it.
    pub(crate) fn observe_pod(&self, pod: &Arc<Pod>) {
        let pod = match self.shared.allocations.get() {
            Some(allocations) => allocations.update_pod_from_allocation(pod),
            None => pod.clone(),
        };
        self.shared.registry.lock().observe_pod(&pod);
    }

    /// Ends these pods, each within its own grace period or the given one if that is shorter. Returns when all their
    /// resources are released, or when the workers stop. The pods are not started again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait; the pods continue to end.
    pub async fn end_pods(&self, pods: Vec<Arc<Pod>>, grace_period: Option<Duration>) {
        let uids: Vec<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        let ending = pods.into_iter().map(|pod| {
            let (completed, ended) = oneshot::channel();
            let own = u64::try_from(pod.termination_grace_period_seconds()).unwrap_or_default();
            self.update_pod(UpdatePod::kill(
                pod,
                KillPod {
                    grace_period: grace_period.map(|given| given.min(Duration::from_secs(own))),
                    completed: Some(completed),
                    ..KillPod::default()
                },
            ));
            ended
        });
        // A dropped sender means that the pod never ran or has ended before.
        futures::future::join_all(ending).await;
        // Their containers have ended; their resources are still to be released.
        loop {
            let mut progress = pin!(self.shared.completed.notified());
            progress.as_mut().enable();
            if self.shared.registry.lock().all_finished(&uids) {
                return;
            }
            progress.await;
        }
    }

    /// Removes the records of finished pods that are no longer desired, and terminates other pods that are not desired.
    /// Returns the known pods (`SyncKnownPods`). A desired pod that is missing in the result should be created again:
    /// an earlier pod with the same UID has ended.
    pub fn sync_known_pods(&self, desired: &HashSet<PodUid>) -> HashMap<PodUid, PodWorkerSync> {
        let (known, work) = {
            let mut registry = self.shared.registry.lock();
            let known = registry.sync_known_pods(desired);
            (known, registry.has_work())
        };
        if work {
            self.shared.changed.notify_one();
        }
        known
    }

    /// The UIDs of all pods with a worker.
    pub(crate) fn uids(&self) -> Vec<PodUid> {
        self.shared.registry.lock().uids().cloned().collect()
    }

    /// The pods that are ending and of which a container may still run, ordered by UID. Their sources may have removed them already.
    pub fn terminating_pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.shared.registry.lock().terminating().cloned().collect();
        pods.sort_by_cached_key(|pod| pod.uid());
        pods
    }

    /// Whether all desired pods were received once (`podsSynced`).
    pub(crate) fn is_synced(&self) -> bool {
        self.shared.registry.lock().is_synced()
    }

    /// Counts changes of the set of pods and of their states.
    pub(crate) fn changes(&self) -> Changes {
        self.shared.registry.lock().changes().clone()
    }

    /// Whether the pod has a worker.
    pub(crate) fn knows(&self, uid: &PodUid) -> bool {
        self.shared.registry.lock().record(uid).is_some()
    }

    /// Whether its containers are known to have ended (`IsPodKnownTerminated`).
    pub fn is_pod_known_terminated(&self, uid: &PodUid) -> bool {
        self.ask(uid, |record| record.terminated, |_| false)
    }

    /// Whether a container of it may be running (`CouldHaveRunningContainers`).
    pub fn could_have_running_containers(&self, uid: &PodUid) -> bool {
        self.ask(uid, |record| !record.terminated, |synced| !synced)
    }

    /// Whether it has ended and its resources are released (`ShouldPodBeFinished`).
    pub fn should_pod_be_finished(&self, uid: &PodUid) -> bool {
        self.ask(uid, |record| record.finished, |synced| synced)
    }

    /// Whether its termination was requested (`IsPodTerminationRequested`).
    pub fn is_pod_termination_requested(&self, uid: &PodUid) -> bool {
        self.ask(uid, |record| record.termination_requested, |_| false)
    }

    /// Whether no container of it will be started any more (`ShouldPodContainersBeTerminating`).
    pub fn should_pod_containers_be_terminating(&self, uid: &PodUid) -> bool {
        self.ask(uid, |record| record.termination_started, |synced| synced)
    }

    /// Whether a static pod of this name is ending and has not ended yet (`IsPodForMirrorPodTerminatingByFullName`).
    pub fn is_static_pod_terminating(&self, key: &PodKey) -> bool {
        let registry = self.shared.registry.lock();
        registry
            .started_static(key)
            .is_some_and(|record| record.termination_requested && !record.terminated)
    }

    fn ask(
        &self,
        uid: &PodUid,
        known: impl FnOnce(&record::PodRecord) -> bool,
        unknown: impl FnOnce(bool) -> bool,
    ) -> bool {
        let registry = self.shared.registry.lock();
        registry
            .record(uid)
            .map_or_else(|| unknown(registry.is_synced()), known)
    }
}

impl PodStateProvider for PodWorkersHandle {
    fn should_pod_content_be_removed(&self, uid: &PodUid) -> bool {
        self.ask(
            uid,
            |record| record.evicted || (record.deleted && record.terminated),
            |synced| synced,
        )
    }

    fn should_pod_runtime_be_removed(&self, uid: &PodUid) -> bool {
        self.ask(uid, |record| record.terminated, |synced| synced)
    }
}

crate::impl_debug!(PodWorkersHandle);
