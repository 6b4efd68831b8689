//! The state of each pod: its status, what the sink has of it, and whether it is queued.
//!
//! No clocks, sinks or tasks: the caller passes the time and the results of requests to [`Records`].

mod change;
mod known;

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::{Clock, PodExt, PodKey, PodUid, annotations};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

pub(crate) use self::known::Known;
use crate::equality::{same_by_kubelet, same_news};
use crate::metrics;
use crate::normalize::{keep_transition_times, normalize};
use crate::pod_startup_latency::PodStartupLatencyTracker;
use crate::resize::ResizeConditions;
use crate::status_ext::{any_container_runs, is_terminal, phase};
use crate::transitions;

/// The wait before the first retry; it doubles with each failure.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest wait: the period in which all statuses are checked.
const LAST_RETRY: Duration = Duration::from_secs(10);

/// The capacity that is kept: at first all pods are queued, later only a few are.
const KEPT_ROOM: usize = 64;

/// Both clocks, which are read only if something has changed.
pub(crate) struct Now(pub(crate) Clock);

impl Now {
    pub(crate) fn wall(&self) -> Time {
        self.0.api_now()
    }

    pub(crate) fn instant(&self) -> Instant {
        Instant::now()
    }
}

/// What to do in the sink for one pod.
pub(crate) struct Job {
    pub(crate) uid: PodUid,
    pub(crate) pod: Arc<Pod>,
    pub(crate) task: Task,
}

pub(crate) enum Task {
    /// Send this status, and delete the pod if it has ended and is being deleted.
    Send(Send),
    /// The pod is gone from its source.
    Forget,
}

pub(crate) struct Send {
    pub(crate) status: Arc<ApiPodStatus>,
    pub(crate) version: u64,
    /// All containers have ended and all resources are released.
    pub(crate) finished: bool,
    /// A container may run.
    pub(crate) may_run: bool,
    /// What is known of the sink's version.
    pub(crate) known: Known,
    /// Whether it is a static pod without a known mirror.
    pub(crate) lacks_mirror: bool,
}

/// The result of a [`Job`].
pub(crate) enum Outcome {
    /// The sink has this version with this status, and returned the pod if it stores pods.
    Sent(u64, Arc<ApiPodStatus>, Option<Arc<Pod>>),
    /// The sink does not have the pod, or not yet.
    Absent,
    /// The pod is gone from the sink, or another pod has its name.
    Gone,
    /// The sink has dropped its copy of the status.
    Forgotten,
    /// It failed, and must not be retried before this time.
    Failed(Option<Duration>),
}

/// The statuses of all pods.
#[derive(Default)]
pub(crate) struct Records {
    /// Boxed: a hash map has spare capacity for entries.
    by_uid: FxHashMap<PodUid, Box<Record>>,
    /// The queue; it contains each pod once at most.
    ready: VecDeque<PodUid>,
    /// Pods that wait for a retry.
    delayed: BTreeSet<(Instant, PodUid)>,
    /// The mirrors of static pods on the API server.
    mirrors: FxHashMap<PodKey, Arc<Pod>>,
    /// Pods whose syncs have begun and whose containers have not all ended.
    may_run: FxHashSet<PodUid>,
    /// Resizes that are pending or in progress.
    resizes: FxHashMap<PodUid, ResizeConditions>,
    startup_latency: PodStartupLatencyTracker,
}

struct Record {
    pod: Arc<Pod>,
    /// The status reported last.
    status: Arc<ApiPodStatus>,
    /// Incremented with each change of the status.
    version: u64,
    /// The version that the sink has.
    sent: u64,
    known: Known,
    finished: bool,
    /// When the status first changed after it was last sent.
    changed_at: Instant,
    /// Whether the pod's source shows another status than ours.
    differs: bool,
    /// Whether the pod is gone from its source.
    orphaned: bool,
    turn: Turn,
    failures: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Idle,
    Ready,
    Delayed(Instant),
    Sending,
}

impl Record {
    /// Whether this mirror represents this version of the static pod, not an earlier or later one.
    fn is_shown_by(&self, mirror: &Pod) -> bool {
        self.pod.is_static() && self.pod.key() == mirror.key() && is_mirror_of(mirror, &self.pod)
    }

    /// Whether the API server shows another status than ours (`needsReconcile`).
    fn is_shown_otherwise(&self, there: &Pod) -> bool {
        !shows(there, &self.status)
    }

    /// Takes over the times of the status that the mirror shows, where it shows the same. The status was not sent yet.
    fn continue_from(&mut self, mirror: &Pod) {
        let Some(shown) = &mirror.status else { return };
        if !transitions::are_possible(&self.pod, Some(shown), &self.status) {
            return;
        }
        let mut status = ApiPodStatus::clone(&self.status);
        status.start_time = shown.start_time.clone().or(status.start_time);
        keep_transition_times(&mut status, shown);
        self.status = Arc::new(status);
        self.version += 1;
    }

    /// Whether this status equals the known one, apart from start time and generation, which it would take over.
    fn says_the_same_as(&self, status: &ApiPodStatus) -> bool {
        self.status.start_time.is_some()
            && status.observed_generation <= self.status.observed_generation
            && same_news(&self.status, status)
    }

    /// It is to be sent again.
    fn has_changed(&mut self, now: &Now) {
        if !self.is_unsent() {
            self.changed_at = now.instant();
        }
        self.version += 1;
    }

    fn is_unsent(&self) -> bool {
        self.sent < self.version
    }

    /// Whether it has ended and is being deleted (`canBeDeleted`).
    fn is_deletable(&self) -> bool {
        self.finished && self.pod.is_deleting() && !self.pod.is_mirror() && is_terminal(phase(&self.status))
    }
}

impl Records {
    /// The status reported last, by the UID of the pod or of its mirror.
    pub(crate) fn status(&self, uid: &PodUid) -> Option<&Arc<ApiPodStatus>> {
        let of_mirror = || {
            let mirror = self
                .mirrors
                .values()
                .find(|mirror| mirror.uid_str() == uid.as_str())?;
            self.by_uid
                .values()
                .map(|record| &**record)
                .find(|record| !record.orphaned && record.is_shown_by(mirror))
        };
        self.known(uid).or_else(of_mirror).map(|record| &record.status)
    }

    /// The source's current version of a pod or of a static pod's mirror. Returns whether to send something at once.
    pub(crate) fn observe_pod(&mut self, pod: &Arc<Pod>, now: &Now) -> bool {
        if pod.is_mirror() {
            return self.observe_mirror(pod);
        }
        if !pod.is_static() {
            self.startup_latency.observed_pod_on_watch(pod, &now.wall());
        }
        let uid = pod.uid();
        let Some(record) = self.by_uid.get_mut(&uid) else {
            return false;
        };
        record.pod = pod.clone();
        if !pod.is_static() && record.known.saw(pod) {
            record.differs = record.is_shown_otherwise(pod);
        }
        let deletable = record.is_deletable();
        if deletable {
            self.queue(&uid);
        }
        deletable
    }

    fn observe_mirror(&mut self, mirror: &Arc<Pod>) -> bool {
        let before = self.mirrors.insert(mirror.key(), mirror.clone());
        let shown = |(_, record): &(&PodUid, &mut Box<Record>)| record.is_shown_by(mirror);
        let Some((uid, record)) = self.by_uid.iter_mut().find(shown) else {
            return false;
        };
        // The file source can be faster than the API server after a restart of the agent.
        if record.sent == 0 && record.known.there.is_none() {
            record.continue_from(mirror);
        }
        if !record.known.saw(mirror) {
            return false;
        }
        record.differs = record.is_shown_otherwise(mirror);
        // A new mirror has no status yet: send it now, without waiting for the next check.
        let is_new = before.is_none_or(|before| before.uid_str() != mirror.uid_str());
        let uid = (is_new && record.differs).then(|| uid.clone());
        uid.as_ref().inspect(|uid| self.queue(uid)).is_some()
    }

    /// `RemoveOrphanedStatuses`: removes all but the known pods and mirrors. Returns whether there were any.
    pub(crate) fn remove_orphaned(&mut self, known: &HashSet<PodUid>) -> bool {
        let orphans: Vec<PodUid> = self
            .by_uid
            .iter()
            .filter(|(uid, record)| !record.orphaned && !known.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &orphans {
            if let Some(record) = self.by_uid.get_mut(uid) {
                record.orphaned = true;
            }
            self.queue(uid);
        }
        self.may_run.retain(|uid| known.contains(uid));
        self.startup_latency.retain(known);
        self.resizes(|resizes| resizes.retain(|uid, _| known.contains(uid)));
        self.mirrors.retain(|_, mirror| known.contains(mirror.uid_str()));
        !orphans.is_empty()
    }

    /// Whether the mirror does not show the end of an earlier run of the pod.
    pub(crate) fn can_be_shown_by(&self, pod: &Pod, mirror: &Pod) -> bool {
        let shown = mirror.status.as_ref();
        let record = self.known(&pod.uid());
        record.is_none_or(|record| transitions::are_possible(pod, shown, &record.status))
    }

    /// A pod's resize conditions.
    pub(crate) fn resize_conditions(&self, uid: &PodUid) -> Option<&ResizeConditions> {
        self.resizes.get(uid)
    }

    /// The start latency of pods.
    pub(crate) fn startup_latency(&mut self) -> &mut PodStartupLatencyTracker {
        &mut self.startup_latency
    }

    /// Changes resize conditions, and updates their metrics.
    pub(crate) fn resizes<T>(
        &mut self,
        change: impl FnOnce(&mut FxHashMap<PodUid, ResizeConditions>) -> T,
    ) -> T {
        let had_any = !self.resizes.is_empty();
        let changed = change(&mut self.resizes);
        self.resizes.retain(|_, conditions| !conditions.is_empty());
        if had_any || !self.resizes.is_empty() {
            metrics::resizes(self.resizes.values());
        }
        changed
    }

    /// Queues all pods with pending work. Returns whether there were any.
    pub(crate) fn queue_outstanding(&mut self) -> bool {
        let outstanding: Vec<PodUid> = self
            .by_uid
            .iter()
            .filter(|(_, record)| {
                record.is_unsent() || record.orphaned || record.is_deletable() || record.differs
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in &outstanding {
            self.queue(uid);
        }
        !outstanding.is_empty()
    }

    /// Queues all pods with pending work, also those that wait for a retry.
    pub(crate) fn queue_all(&mut self) {
        self.queue_outstanding();
        for (_, uid) in std::mem::take(&mut self.delayed) {
            if let Some(record) = self.by_uid.get_mut(&uid) {
                record.turn = Turn::Ready;
                self.ready.push_back(uid);
            }
        }
    }

    /// The next job. The pod gets no other one until [`finish`](Self::finish).
    pub(crate) fn next(&mut self, now: Instant) -> Option<Job> {
        while self.delayed.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, uid)) = self.delayed.pop_first() else {
                break;
            };
            if let Some(record) = self.by_uid.get_mut(&uid) {
                record.turn = Turn::Ready;
                self.ready.push_back(uid);
            }
        }
        loop {
            let Some(uid) = self.ready.pop_front() else {
                self.ready.shrink_to(KEPT_ROOM);
                return None;
            };
            let Some(record) = self.by_uid.get_mut(&uid) else {
                continue;
            };
            record.turn = Turn::Sending;
            record.differs = false;
            let mirror = self.mirrors.get(&record.pod.key());
            let mirror = mirror.filter(|mirror| record.is_shown_by(mirror));
            if let Some(mirror) = mirror
                && record.known.there.is_none()
            {
                record.known.saw(mirror);
            }
            record.known.sends();
            // A pending status is sent first, even if the pod is gone from its source.
            let task = match record.orphaned && !record.is_unsent() {
                true => Task::Forget,
                false => Task::Send(Send {
                    status: record.status.clone(),
                    version: record.version,
                    finished: record.finished,
                    may_run: !record.finished
                        && (self.may_run.contains(&uid) || any_container_runs(&record.status)),
                    known: record.known.clone(),
                    lacks_mirror: record.pod.is_static() && mirror.is_none(),
                }),
            };
            return Some(Job {
                pod: record.pod.clone(),
                uid,
                task,
            });
        }
    }

    /// The time of the first retry.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Applies the result of a job.
    pub(crate) fn finish(&mut self, uid: &PodUid, outcome: Outcome, now: Instant) {
        let Some(record) = self.by_uid.get_mut(uid) else {
            return;
        };
        record.turn = Turn::Idle;
        if !matches!(outcome, Outcome::Failed(_)) {
            record.failures = 0;
        }
        match outcome {
            Outcome::Sent(version, status, there) => {
                if record.sent < version {
                    metrics::pod_status_synced(now.duration_since(record.changed_at));
                }
                if let Some(there) = &there {
                    self.startup_latency.status_updated(there);
                }
                record.sent = version;
                if let Some(there) = &there
                    && !shows(there, &status)
                {
                    // The patch was based on an older version: the remaining difference is corrected later.
                    record.differs = true;
                }
                // Usually both are equal; one copy is enough.
                let told = match *status == *record.status {
                    true => record.status.clone(),
                    false => status,
                };
                record.known.sent(told, there);
                if record.is_unsent() {
                    record.changed_at = now;
                }
                if record.is_unsent() || record.orphaned {
                    self.queue(uid);
                }
            }
            // A mirror may be created, or the source will report the deletion. Both can wait.
            Outcome::Absent if record.orphaned => {
                record.sent = record.version;
                self.queue(uid);
            }
            Outcome::Absent => record.known.there = None,
            Outcome::Forgotten if !record.orphaned => {
                // It came back in the meantime.
                record.known = Known::default();
                record.sent = 0;
                self.queue(uid);
            }
            Outcome::Gone | Outcome::Forgotten => {
                self.by_uid.remove(uid);
                self.startup_latency.forget(uid);
                self.resizes(|resizes| resizes.remove(uid));
            }
            Outcome::Failed(retry_after) => {
                record.known.failed();
                let wait = FIRST_RETRY * 2_u32.saturating_pow(record.failures.min(16));
                record.failures += 1;
                let at = now + wait.min(LAST_RETRY).max(retry_after.unwrap_or_default());
                record.turn = Turn::Delayed(at);
                self.delayed.insert((at, uid.clone()));
            }
        }
    }

    fn known(&self, uid: &PodUid) -> Option<&Record> {
        let record = self.by_uid.get(uid)?;
        Some(&**record).filter(|record| !record.orphaned)
    }

    /// Queues the pod, unless it is queued, waits for a retry, or is being sent; in the last case it is queued
    /// afterwards.
    fn queue(&mut self, uid: &PodUid) {
        if let Some(record) = self.by_uid.get_mut(uid)
            && record.turn == Turn::Idle
        {
            record.turn = Turn::Ready;
            self.ready.push_back(uid.clone());
        }
    }
}

/// Whether the mirror represents this version of the static pod, not an earlier or later one.
pub(crate) fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    let hashes = mirror
        .annotation(annotations::CONFIG_MIRROR)
        .zip(pod.annotation(annotations::CONFIG_HASH));
    hashes.is_none_or(|(shown, own)| shown == own)
}

/// Whether the pod's status in the sink equals this one, in the parts that the kubelet owns.
fn shows(pod: &Pod, status: &ApiPodStatus) -> bool {
    let mut shown = pod.status.clone().unwrap_or_default();
    normalize(pod, &mut shown);
    same_by_kubelet(&shown, status)
}
