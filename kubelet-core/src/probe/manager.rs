//! The engine: who is probed when, and who is told.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::prober::{Place, ProbeTarget, probe_with_retries};
use super::schedule::Ticker;
use super::worker::{Look, ResultSink, Times, Worker, reported_container};
use super::{ProbeKind, ProbeOutcome, ProbeResult, ProbeResultCache, ProbeResults, Prober, metrics};
use crate::{
    Clock, ContainerId, Event, EventRecorder, EventType, Jitter, LogEvents, PodExt, PodStatusReporter, PodUid,
};

/// `periodSeconds` where the API server has set none.
const DEFAULT_PERIOD_SECONDS: i32 = 10;

/// Probes the containers of the pods that it is told of, each probe in its period, and keeps what it found in
/// a [`ProbeResultCache`]. What changes goes to the statuses at once, and the pod to those who sync it
/// ([`ProbeUpdates`]). Answers to the kubelet's `prober.Manager`.
///
/// A probe that waits costs an entry in a table, one that is being made a task; a pod without probes costs
/// nothing. What hangs holds up its own probe only, and ends with its pod.
///
/// [`Kubelet`](crate::Kubelet) makes one if it is given a [`Prober`]; it works alone just as well:
///
/// ```
/// # use std::sync::Arc;
/// # use kubelet_core::*;
/// # async fn example(prober: impl Prober, statuses: Arc<dyn PodStatusReporter>, pod: Arc<k8s_openapi::api::core::v1::Pod>) {
/// let results = ProbeResultCache::new();
/// let manager = ProbeManager::new(prober, results.clone(), statuses, ProbeManagerConfig::default());
/// let (handle, mut updates) = (manager.handle(), manager.updates());
/// let shutdown = tokio_util::sync::CancellationToken::new();
/// let running = tokio::spawn(manager.run(shutdown.clone()));
///
/// handle.add_pod(&pod);
/// let changed = updates.next().await; // sync this pod: its `results` or its status changed
/// # let _ = (changed, running, results);
/// # }
/// ```
pub struct ProbeManager {
    prober: Arc<dyn Prober>,
    recorder: Arc<dyn EventRecorder>,
    handle: ProbeManagerHandle,
}

/// How a [`ProbeManager`] works.
#[derive(Clone)]
#[non_exhaustive]
pub struct ProbeManagerConfig {
    /// What initial delays are measured with; it must be the clock of the runtime's timestamps.
    pub clock: Clock,
    /// Spreads the first probes after a start of the agent over their periods.
    pub jitter: Jitter,
    /// Who is told of probes that fail; by default they are logged.
    pub recorder: Arc<dyn EventRecorder>,
}

impl Default for ProbeManagerConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            jitter: Jitter::default(),
            recorder: Arc::new(LogEvents),
        }
    }
}

impl fmt::Debug for ProbeManagerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeManagerConfig")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl ProbeManager {
    /// A manager that probes with `prober`, writes `results` and tells `statuses`. The agent counts as started
    /// now: a container that runs longer is not called unready before it was measured.
    pub fn new(
        prober: impl Prober,
        results: ProbeResultCache,
        statuses: Arc<dyn PodStatusReporter>,
        config: ProbeManagerConfig,
    ) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            due_changed: Notify::new(),
            results,
            statuses,
            updates: Mutex::default(),
            updated: Notify::new(),
            started: (config.clock.now(), Instant::now()),
            clock: config.clock,
            jitter: config.jitter,
        };
        Self {
            prober: Arc::new(prober),
            recorder: config.recorder,
            handle: ProbeManagerHandle(Arc::new(shared)),
        }
    }

    /// The handle for everyone else. It works, too, before the manager runs and after: nothing is probed then.
    pub fn handle(&self) -> ProbeManagerHandle {
        self.handle.clone()
    }

    /// The pods to sync. There is one set: of several takers each gets a part.
    pub fn updates(&self) -> ProbeUpdates {
        ProbeUpdates(self.handle.0.clone())
    }

    /// Probes until `shutdown`. Attempts that are under way then are dropped; all tasks have ended when it
    /// returns.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts what is under way. Results stay with the cache.
    pub async fn run(self, shutdown: CancellationToken) {
        let shared = &*self.handle.0;
        let mut acts: JoinSet<Act> = JoinSet::new();
        loop {
            let next = shared.state.lock().due.first().map(|(at, _)| *at);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = acts.join_next() => match ended {
                    Ok(act) => self.finish(act),
                    Err(error) => shared.lost(&error),
                },
                () = shared.due_changed.notified() => {}
                () = sleep_until(next) => self.start_due(&mut acts),
            }
        }
        acts.shutdown().await;
    }

    /// Looks at every probe that is due, and starts those that are to be made.
    fn start_due(&self, acts: &mut JoinSet<Act>) {
        let shared = &*self.handle.0;
        let now = Instant::now();
        let mut state = shared.state.lock();
        while let Some(id) = state.take_due(now) {
            let Some(entry) = state.workers.get_mut(&id) else {
                continue;
            };
            entry.take_tick(now);
            let worker = &mut entry.worker;
            let status = shared.statuses.pod_status(&entry.uid);
            let times = Times {
                now: shared.clock.now(),
                agent_started: shared.started.0,
            };
            match worker.look(status.as_deref(), times, shared) {
                Look::Wait => state.schedule_next(id, now),
                Look::End => {
                    worker.forget(&shared.results);
                    entry.ended = true;
                }
                Look::Probe => {
                    let (Some(status), Some(container)) = (status, worker.container_id.clone()) else {
                        state.schedule_next(id, now);
                        continue;
                    };
                    let pod = worker.pod.clone();
                    let target = ProbeTarget::at(worker.kind, pod, status, worker.place, container);
                    let prober = self.prober.clone();
                    entry.act = Some(acts.spawn(async move {
                        let outcome = probe_with_retries(&*prober, &target).await;
                        let took = now.elapsed();
                        Act {
                            worker: id,
                            target,
                            outcome,
                            took,
                        }
                    }));
                }
            }
        }
    }

    /// Tells what came of a probe, and takes it in.
    fn finish(&self, act: Act) {
        let shared = &*self.handle.0;
        let mut state = shared.state.lock();
        let Some(entry) = state.workers.get_mut(&act.worker) else {
            return;
        };
        entry.act = None;
        if let Some(result) = self.tell(&act) {
            let name = entry.worker.container_name();
            metrics::probed(act.target.kind, &act.target.pod, name, result, act.took);
            entry.worker.judge(result, shared);
        }
        state.schedule_next(act.worker, Instant::now());
    }

    /// The result and the event of one probe; none where nothing was measured.
    fn tell(&self, act: &Act) -> Option<ProbeResult> {
        let target = &act.target;
        let (kind, pod) = (target.kind, &target.pod);
        let name = target.container().map_or("", |container| &container.name);
        let (uid, key) = (pod.uid_str(), pod.key());
        let warn = |reason, message| {
            self.recorder.record(Event {
                pod,
                field_path: Some(target.field_path()),
                event_type: EventType::Warning,
                reason,
                message,
            });
        };
        match &act.outcome {
            ProbeOutcome::Success => {
                tracing::trace!(pod = %key, uid, container = name, %kind, "Probe succeeded");
                Some(ProbeResult::Success)
            }
            ProbeOutcome::Warning { output } => {
                tracing::debug!(pod = %key, uid, container = name, %kind, output, "Probe succeeded with a warning");
                warn("ProbeWarning", format!("{kind} probe warning: {output}"));
                Some(ProbeResult::Success)
            }
            ProbeOutcome::Failure { output } => {
                tracing::info!(pod = %key, uid, container = name, %kind, output, "Probe failed");
                warn("Unhealthy", format!("{kind} probe failed: {output}"));
                Some(ProbeResult::Failure)
            }
            ProbeOutcome::Errored { result, error } => {
                tracing::info!(pod = %key, uid, container = name, %kind, error, "Probe errored");
                let state = match result {
                    ProbeResult::Success => "success",
                    ProbeResult::Failure => "failure",
                    ProbeResult::Unknown => "unknown",
                };
                let message = format!("{kind} probe errored and resulted in {state} state: {error}");
                warn("Unhealthy", message);
                None
            }
        }
    }
}

impl fmt::Debug for ProbeManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProbeManager").field(&self.handle).finish()
    }
}

/// A probe that was made.
struct Act {
    worker: WorkerId,
    target: ProbeTarget,
    outcome: ProbeOutcome,
    took: Duration,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Tells the [`ProbeManager`] which pods to probe. Cheap to clone; no call waits.
#[derive(Clone)]
pub struct ProbeManagerHandle(Arc<Shared>);

impl ProbeManagerHandle {
    /// Probes the containers of this pod from now on, or goes on with the pod as it is now (`AddPod`). To be
    /// called with every sync.
    ///
    /// The first look is taken at once; within a period after the start of the agent, at a random moment of the
    /// probe's first period.
    pub fn add_pod(&self, pod: &Arc<Pod>) {
        let shared = &*self.0;
        let mut wanted = Place::all(pod)
            .flat_map(|(place, container)| ProbeKind::ALL.map(|kind| (place, container, kind)))
            .filter(|(_, container, kind)| kind.of(container).is_some())
            .peekable();
        let mut state = shared.state.lock();
        if wanted.peek().is_none() && !state.pods.contains_key(pod.uid_str()) {
            return;
        }
        let (uid, now) = (pod.uid(), Instant::now());
        let mut before = state.pods.remove(&uid).unwrap_or_default();
        let mut ids = Vec::new();
        for (place, container, kind) in wanted {
            let known = before.iter().position(|id| {
                let entry = state.workers.get(id);
                entry.is_some_and(|entry| {
                    entry.worker.kind == kind && entry.worker.container_name() == container.name
                })
            });
            let id = match known {
                Some(at) => {
                    let id = before.swap_remove(at);
                    if let Some(entry) = state.workers.get_mut(&id) {
                        entry.worker.pod = pod.clone();
                        entry.worker.place = place;
                        if entry.ended && shared.has_another_container(entry) {
                            // All containers of the pod start anew.
                            entry.ended = false;
                            entry.ticker = None;
                            state.set_due(id, now);
                        }
                    }
                    id
                }
                None => {
                    let period = period(kind.of(container).and_then(|probe| probe.period_seconds));
                    let worker = Worker::new(kind, pod.clone(), place);
                    state.insert(uid.clone(), worker, period, now + shared.first_delay(period))
                }
            };
            ids.push(id);
        }
        for id in before {
            state.remove(id, &shared.results);
        }
        if !ids.is_empty() {
            state.pods.insert(uid, ids);
        }
        drop(state);
        shared.due_changed.notify_one();
    }

    /// The pod's containers are being stopped: what they answer now is no reason to kill them. Readiness is
    /// measured on. The probes of init containers go on, too (`StopLivenessAndStartup`).
    pub fn stop_liveness_and_startup(&self, uid: &PodUid) {
        self.retain(uid, |worker| {
            worker.kind == ProbeKind::Readiness || worker.place.init
        });
    }

    /// Nothing of the pod runs any more: its probes end and their results are forgotten (`RemovePod`).
    pub fn remove_pod(&self, uid: &PodUid) {
        self.retain(uid, |_| false);
    }

    /// Ends the probes of all other pods (`CleanupPods`).
    pub fn cleanup_pods(&self, desired: &HashSet<PodUid>) {
        let known: Vec<PodUid> = self.0.state.lock().pods.keys().cloned().collect();
        for gone in known.iter().filter(|uid| !desired.contains(*uid)) {
            self.remove_pod(gone);
        }
    }

    /// Looks at once at the readiness of containers that this status shows as started, and that are not known
    /// to be ready (the part of `UpdatePodStatus` that is not in the status itself).
    pub fn probe_unready(&self, uid: &PodUid, status: &ApiPodStatus) {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        let Some(ids) = state.pods.get(uid).cloned() else {
            return;
        };
        for id in ids {
            let Some(entry) = state.workers.get_mut(&id) else {
                continue;
            };
            if entry.worker.kind != ProbeKind::Readiness || entry.ended {
                continue;
            }
            let reported = reported_container(status, entry.worker.container_name());
            let unready = reported.is_some_and(|(container, status)| {
                let running = status.state.as_ref().is_some_and(|state| state.running.is_some());
                let started = running && status.started == Some(true);
                started && shared.results.readiness(&container) != Some(ProbeResult::Success)
            });
            if !unready {
                continue;
            }
            entry.triggered = true;
            // One that is under way is followed by another. The first look keeps its random moment.
            if entry.act.is_none() && entry.ticker.is_some() {
                state.set_due(id, Instant::now());
            }
        }
        drop(state);
        shared.due_changed.notify_one();
    }

    /// How many probes there are.
    pub fn worker_count(&self) -> usize {
        self.0.state.lock().workers.len()
    }

    /// Ends the probes of a pod that are not to be kept.
    fn retain(&self, uid: &PodUid, keep: impl Fn(&Worker) -> bool) {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        let Some(ids) = state.pods.remove(uid) else {
            return;
        };
        let keep = |id: &WorkerId| state.workers.get(id).is_some_and(|entry| keep(&entry.worker));
        let (kept, ended): (Vec<_>, Vec<_>) = ids.into_iter().partition(keep);
        for id in ended {
            state.remove(id, &shared.results);
        }
        if !kept.is_empty() {
            state.pods.insert(uid.clone(), kept);
        }
    }
}

impl fmt::Debug for ProbeManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeManagerHandle")
            .field("workers", &self.worker_count())
            .finish()
    }
}

/// The pods of which some result changed: a set, so that it can be neither full nor out of date.
pub struct ProbeUpdates(Arc<Shared>);

impl ProbeUpdates {
    /// Waits for a pod that is to be synced because of its probes, in the order in which they changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&mut self) -> PodUid {
        loop {
            if let Some(uid) = self.0.updates.lock().pop() {
                return uid;
            }
            self.0.updated.notified().await;
        }
    }
}

impl fmt::Debug for ProbeUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeUpdates").finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    /// Some probe may be due before the engine wakes.
    due_changed: Notify,
    results: ProbeResultCache,
    statuses: Arc<dyn PodStatusReporter>,
    updates: Mutex<Dirty>,
    updated: Notify,
    clock: Clock,
    jitter: Jitter,
    /// When the agent started.
    started: (Timestamp, Instant),
}

impl Shared {
    /// After a start of the agent all pods come at once; their probes do not.
    fn first_delay(&self, period: Duration) -> Duration {
        match period > self.started.1.elapsed() {
            true => self.jitter.apply(period, 1.0).saturating_sub(period),
            false => Duration::ZERO,
        }
    }

    fn has_another_container(&self, entry: &Entry) -> bool {
        let status = self.statuses.pod_status(&entry.uid);
        let reported = status
            .as_deref()
            .and_then(|status| reported_container(status, entry.worker.container_name()));
        reported.is_some_and(|(id, _)| entry.worker.container_id.as_ref() != Some(&id))
    }

    /// A prober has panicked, or its pod has ended.
    fn lost(&self, error: &JoinError) {
        if error.is_cancelled() {
            return;
        }
        let mut state = self.state.lock();
        let of_task = |entry: &Entry| entry.act.as_ref().is_some_and(|act| act.id() == error.id());
        let lost = state
            .workers
            .iter()
            .find(|(_, entry)| of_task(entry))
            .map(|(id, _)| *id);
        let Some(id) = lost else {
            return;
        };
        if let Some(entry) = state.workers.get_mut(&id) {
            entry.act = None;
            let pod = entry.worker.pod.key();
            let (uid, container) = (&entry.uid, entry.worker.container_name());
            tracing::error!(%pod, %uid, container, %error, "the prober panicked");
        }
        state.schedule_next(id, Instant::now());
    }
}

impl ResultSink for Shared {
    fn set(&self, kind: ProbeKind, pod: &Pod, container: &ContainerId, result: ProbeResult) {
        if !self.results.set(kind, container, result) {
            return;
        }
        let (uid, good) = (pod.uid(), result == ProbeResult::Success);
        match kind {
            ProbeKind::Liveness if result != ProbeResult::Failure => return,
            ProbeKind::Liveness => {}
            ProbeKind::Readiness => self.statuses.set_container_readiness(&uid, container, good),
            ProbeKind::Startup => self.statuses.set_container_startup(&uid, container, good),
        }
        tracing::debug!(pod = %pod.key(), %uid, %container, %kind, %result, "SyncLoop (probe)");
        self.updates.lock().push(uid);
        self.updated.notify_one();
    }

    fn results(&self) -> &ProbeResultCache {
        &self.results
    }
}

#[derive(Default)]
struct Dirty {
    order: VecDeque<PodUid>,
    known: FxHashSet<PodUid>,
}

impl Dirty {
    fn push(&mut self, uid: PodUid) {
        if self.known.insert(uid.clone()) {
            self.order.push_back(uid);
        }
    }

    fn pop(&mut self) -> Option<PodUid> {
        let uid = self.order.pop_front()?;
        self.known.remove(&uid);
        Some(uid)
    }
}

type WorkerId = u64;

#[derive(Default)]
struct State {
    pods: FxHashMap<PodUid, Vec<WorkerId>>,
    workers: FxHashMap<WorkerId, Entry>,
    due: BTreeSet<(Instant, WorkerId)>,
    next_id: WorkerId,
}

struct Entry {
    uid: PodUid,
    worker: Worker,
    period: Duration,
    /// Runs from the first look on.
    ticker: Option<Ticker>,
    due: Option<Instant>,
    act: Option<AbortHandle>,
    /// It is to be made out of turn, and its beat starts anew then.
    triggered: bool,
    /// Its container does not come back.
    ended: bool,
}

impl Entry {
    fn take_tick(&mut self, now: Instant) {
        let triggered = std::mem::take(&mut self.triggered);
        match &mut self.ticker {
            Some(ticker) if !triggered => ticker.take(now),
            ticker => *ticker = Some(Ticker::starting(now, self.period)),
        }
    }
}

impl State {
    fn insert(&mut self, uid: PodUid, worker: Worker, period: Duration, due: Instant) -> WorkerId {
        let id = self.next_id;
        self.next_id += 1;
        let entry = Entry {
            uid,
            worker,
            period,
            ticker: None,
            due: None,
            act: None,
            triggered: false,
            ended: false,
        };
        self.workers.insert(id, entry);
        self.set_due(id, due);
        id
    }

    fn remove(&mut self, id: WorkerId, results: &ProbeResultCache) {
        let Some(entry) = self.workers.remove(&id) else {
            return;
        };
        if let Some(due) = entry.due {
            self.due.remove(&(due, id));
        }
        if let Some(act) = entry.act {
            act.abort();
        }
        entry.worker.forget(results);
    }

    fn set_due(&mut self, id: WorkerId, at: Instant) {
        if let Some(entry) = self.workers.get_mut(&id) {
            if let Some(before) = entry.due.replace(at) {
                self.due.remove(&(before, id));
            }
            self.due.insert((at, id));
        }
    }

    /// Its next tick, or now if it is asked for.
    fn schedule_next(&mut self, id: WorkerId, now: Instant) {
        let Some(entry) = self.workers.get(&id) else {
            return;
        };
        let next = match &entry.ticker {
            Some(ticker) if !entry.triggered => ticker.next().max(now),
            _ => now,
        };
        self.set_due(id, next);
    }

    fn take_due(&mut self, now: Instant) -> Option<WorkerId> {
        let (at, id) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        if let Some(entry) = self.workers.get_mut(&id) {
            entry.due = None;
        }
        Some(id)
    }
}

fn period(seconds: Option<i32>) -> Duration {
    let seconds = seconds
        .filter(|seconds| *seconds > 0)
        .unwrap_or(DEFAULT_PERIOD_SECONDS);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
