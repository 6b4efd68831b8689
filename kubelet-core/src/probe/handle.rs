//! The handle of the probe manager, and the state that the probes share.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio::time::Instant;

use super::prober::Place;
use super::table::{Entry, ProbeTable, WorkerId};
use super::worker::{ResultSink, Worker, reported_container};
use super::{ProbeKind, ProbeResult, ProbeResultCache, ProbeResults};
use crate::dirty_pods::DirtyPods;
use crate::{Clock, ContainerId, Jitter, PodExt, PodStatusReporter, PodUid};

/// The default of `periodSeconds`.
const DEFAULT_PERIOD_SECONDS: i32 = 10;

/// Sets which pods a [`ProbeManager`](super::ProbeManager) probes. Cheap to clone; no call waits.
#[derive(Clone)]
pub struct ProbeManagerHandle(pub(super) Arc<Shared>);

impl ProbeManagerHandle {
    /// Starts to probe the containers of this pod, or updates the pod (`AddPod`). Call it with every sync.
    ///
    /// The first check is immediate. Within one period after the start of the agent, it is at a random time of the
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
                            // All containers of the pod restart.
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

    /// The pod's containers are being stopped: liveness and startup probes end, since a failure must not kill a
    /// container before its grace period is over. Readiness probes continue, and so do the probes of init containers
    /// (`StopLivenessAndStartup`).
    pub fn stop_liveness_and_startup(&self, uid: &PodUid) {
        self.retain(uid, |worker| {
            worker.kind == ProbeKind::Readiness || worker.place.init
        });
    }

    /// No container of the pod runs any more: its probes end and their results are removed (`RemovePod`).
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

    /// Checks readiness now for containers that are started in this status and not known to be ready (the part of
    /// `UpdatePodStatus` outside the status itself).
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
            // A running probe is followed by another one. The first check keeps its random time.
            if entry.act.is_none() && entry.ticker.is_some() {
                state.set_due(id, Instant::now());
            }
        }
        drop(state);
        shared.due_changed.notify_one();
    }

    /// The last results of the pod's probes, in a fixed order.
    pub(crate) fn results_of(&self, uid: &PodUid) -> Vec<ContainerProbe> {
        let shared = &*self.0;
        let state = shared.state.lock();
        let workers = state.pods.get(uid).into_iter().flatten();
        let workers = workers.filter_map(|id| Some(&state.workers.get(id)?.worker));
        let found = workers.filter_map(|worker| {
            let id = worker.container_id.clone()?;
            Some(ContainerProbe {
                kind: worker.kind,
                name: worker.container_name().to_owned(),
                result: shared.results.get(worker.kind, &id)?,
                id,
            })
        });
        found.collect()
    }

    /// Probes the pod like [`add_pod`](Self::add_pod), and uses the results of the previous run of the agent until
    /// there are new ones. The reported status takes precedence, since a record may be slightly older.
    pub(crate) fn restore(&self, pod: &Arc<Pod>, found: Vec<ContainerProbe>) {
        self.add_pod(pod);
        let shared = &*self.0;
        let mut state = shared.state.lock();
        let ids = state.pods.get(pod.uid_str()).cloned().unwrap_or_default();
        for mut probe in found {
            let told = pod
                .status
                .as_ref()
                .and_then(|status| reported_container(status, &probe.name));
            if let Some((_, told)) = told.filter(|(id, _)| *id == probe.id) {
                match probe.kind {
                    ProbeKind::Readiness if told.ready => probe.result = ProbeResult::Success,
                    ProbeKind::Readiness => probe.result = ProbeResult::Failure,
                    ProbeKind::Startup if told.started == Some(true) => probe.result = ProbeResult::Success,
                    ProbeKind::Startup | ProbeKind::Liveness => {}
                }
            }
            let worker = ids.iter().copied().find(|id| {
                let worker = state.workers.get(id).map(|entry| &entry.worker);
                worker
                    .is_some_and(|worker| worker.kind == probe.kind && worker.container_name() == probe.name)
            });
            let worker = worker.and_then(|id| Some(&mut state.workers.get_mut(&id)?.worker));
            if let Some(worker) = worker.filter(|worker| worker.container_id.is_none()) {
                shared.results.set(probe.kind, &probe.id, probe.result);
                worker.container_id = Some(probe.id);
            }
        }
    }

    /// The number of probes.
    pub fn worker_count(&self) -> usize {
        self.0.state.lock().workers.len()
    }

    /// Ends the probes of a pod that are not in `kept`.
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

/// The last result of one probe of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerProbe {
    pub(crate) kind: ProbeKind,
    /// The container's name.
    pub(crate) name: String,
    pub(crate) id: ContainerId,
    pub(crate) result: ProbeResult,
}

impl fmt::Debug for ProbeManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeManagerHandle")
            .field("workers", &self.worker_count())
            .finish()
    }
}

pub(super) struct Shared {
    pub(super) state: Mutex<ProbeTable>,
    /// A probe may be due before the engine wakes.
    pub(super) due_changed: Notify,
    pub(super) results: ProbeResultCache,
    pub(super) statuses: Arc<dyn PodStatusReporter>,
    pub(super) updates: Arc<DirtyPods>,
    pub(super) clock: Clock,
    pub(super) jitter: Jitter,
    /// When the agent started.
    pub(super) started: (Timestamp, Instant),
}

impl Shared {
    /// After a start of the agent all pods are added at once; this spreads their probes.
    fn first_delay(&self, period: Duration) -> Duration {
        match period > self.started.1.elapsed() {
            true => self.jitter.apply(period, 1.0).saturating_sub(period),
            false => Duration::ZERO,
        }
    }

    fn has_another_container(&self, entry: &mut Entry) -> bool {
        let status = self.statuses.pod_status(&entry.uid);
        let reported = status
            .as_deref()
            .and_then(|status| reported_container(status, entry.worker.container_name()));
        reported.is_some_and(|(id, _)| entry.worker.container_id.as_ref() != Some(&id))
    }

    /// The task of a probe has panicked, or was aborted since its pod ended.
    pub(super) fn lost(&self, error: &JoinError) {
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
            tracing::error!(%pod, %uid, container, %error, "Prober panicked");
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
        self.updates.push(uid);
    }

    fn results(&self) -> &ProbeResultCache {
        &self.results
    }
}

fn period(seconds: Option<i32>) -> Duration {
    let seconds = seconds
        .filter(|seconds| *seconds > 0)
        .unwrap_or(DEFAULT_PERIOD_SECONDS);
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}
