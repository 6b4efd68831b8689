//! What is kept of each pod: its status, what of it the sink knows, and whose turn it is to be sent.
//!
//! No clock, no sink, no task: [`Records`] is told what time it is and what came of a send.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::{ContainerId, PodExt, PodUid};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::conditions;
use crate::error::Error;
use crate::normalize::{normalize, same_by_kubelet, set_transition_times};
use crate::status_ext::{chain, is_terminal, phase, terminated};
use crate::terminate::terminate;
use crate::{metrics, transitions};

/// How long a status waits after it could not be sent; doubled each time.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest wait, no more than it takes to look through all statuses.
const LAST_RETRY: Duration = Duration::from_secs(10);

/// The two clocks' times at which something is told.
#[derive(Clone)]
pub(crate) struct Now {
    pub(crate) wall: Time,
    pub(crate) instant: Instant,
}

/// One turn: what is to be done in the sink for one pod.
pub(crate) struct Job {
    pub(crate) uid: PodUid,
    pub(crate) pod: Arc<Pod>,
    pub(crate) task: Task,
}

pub(crate) enum Task {
    /// Send this status, and delete the pod if it has ended and is to go.
    Send(Send),
    /// The pod is gone from its source.
    Forget,
}

pub(crate) struct Send {
    pub(crate) status: Arc<ApiPodStatus>,
    pub(crate) version: u64,
    /// All containers have ended and all is given back.
    pub(crate) finished: bool,
    /// What was sent last.
    pub(crate) told: Option<Arc<ApiPodStatus>>,
}

/// What came of a [`Job`].
pub(crate) enum Outcome {
    /// The sink has this version now, in these words.
    Sent(u64, Arc<ApiPodStatus>),
    /// The sink has no such pod, yet or any more.
    Absent,
    /// The pod is gone from the sink, or another one has its name.
    Gone,
    /// The sink keeps no copy of the status.
    Forgotten,
    /// It could not be done.
    Failed,
}

/// The statuses of all pods.
#[derive(Default)]
pub(crate) struct Records {
    by_uid: FxHashMap<PodUid, Record>,
    /// Whose turn it is. Every pod stands here once at most.
    ready: VecDeque<PodUid>,
    /// Whose turn it will be.
    delayed: BTreeSet<(Instant, PodUid)>,
}

struct Record {
    pod: Arc<Pod>,
    status: Arc<ApiPodStatus>,
    /// Counts the changes of the status.
    version: u64,
    /// The version that the sink has.
    sent: u64,
    told: Option<Arc<ApiPodStatus>>,
    finished: bool,
    /// When the status changed first since it was sent last.
    changed_at: Instant,
    /// The pod's source shows another status than ours.
    differs: bool,
    /// The pod is gone from its source.
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
    fn is_unsent(&self) -> bool {
        self.sent < self.version
    }

    /// It has ended, and its source wants it gone (`canBeDeleted`).
    fn is_deletable(&self) -> bool {
        self.finished && self.pod.is_deleting() && !self.pod.is_mirror() && is_terminal(phase(&self.status))
    }
}

impl Records {
    /// The status reported last.
    pub(crate) fn status(&self, uid: &PodUid) -> Option<&Arc<ApiPodStatus>> {
        self.known(uid).map(|record| &record.status)
    }

    /// `SetPodStatus`. Tells whether there is something new to send.
    pub(crate) fn set_pod_status(
        &mut self,
        pod: &Arc<Pod>,
        mut status: ApiPodStatus,
        now: &Now,
    ) -> Result<bool, Error> {
        status.observed_generation = conditions::observed_generation(pod);
        // A pod that is to go is sent even without change: whatever its worker does may be what it waits for.
        self.update(pod, status, pod.is_deleting(), false, now)
    }

    /// `TerminatePod`
    pub(crate) fn terminate_pod(&mut self, pod: &Arc<Pod>, now: &Now) -> Result<bool, Error> {
        let reported = self.status(&pod.uid());
        let was_reported = reported.is_some();
        let mut status = match reported {
            Some(status) => ApiPodStatus::clone(status),
            None => pod.status.clone().unwrap_or_default(),
        };
        terminate(pod, &mut status, was_reported);
        self.update(pod, status, true, true, now)
    }

    /// `SetContainerReadiness`
    pub(crate) fn set_container_readiness(
        &mut self,
        uid: &PodUid,
        container: &ContainerId,
        ready: bool,
        now: &Now,
    ) -> Result<bool, Error> {
        let Some((pod, mut status)) = self.of_container(uid, container, |status| status.ready != ready)
        else {
            return Ok(false);
        };
        if let Some(status) = find_container(&mut status, container) {
            status.ready = ready;
        }
        let mut conditions = status.conditions.take().unwrap_or_default();
        let all = chain(&status.init_container_statuses, &status.container_statuses);
        let is_ready = conditions::ready(&pod, &conditions, &all, phase(&status));
        conditions::replace_or_append(&mut conditions, is_ready);
        let containers_ready = conditions::containers_ready(&pod, &all, phase(&status));
        conditions::replace_or_append(&mut conditions, containers_ready);
        status.conditions = Some(conditions);
        self.update(&pod, status, false, false, now)
    }

    /// `SetContainerStartup`
    pub(crate) fn set_container_startup(
        &mut self,
        uid: &PodUid,
        container: &ContainerId,
        started: bool,
        now: &Now,
    ) -> Result<bool, Error> {
        let differs = |status: &ContainerStatus| status.started != Some(started);
        let Some((pod, mut status)) = self.of_container(uid, container, differs) else {
            return Ok(false);
        };
        if let Some(status) = find_container(&mut status, container) {
            status.started = Some(started);
        }
        self.update(&pod, status, false, false, now)
    }

    /// The pod as its source has it now. Tells whether something is to be sent for it.
    pub(crate) fn observe_pod(&mut self, pod: &Arc<Pod>) -> bool {
        let uid = pod.uid();
        let Some(record) = self.by_uid.get_mut(&uid) else {
            return false;
        };
        record.pod = pod.clone();
        let mut theirs = pod.status.clone().unwrap_or_default();
        normalize(pod, &mut theirs);
        record.differs = !pod.is_static() && !same_by_kubelet(&theirs, &record.status);
        let deletable = record.is_deletable();
        if deletable {
            self.queue(&uid);
        }
        deletable
    }

    /// `RemoveOrphanedStatuses`. Tells whether there were any.
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
        !orphans.is_empty()
    }

    /// Looks through all: whoever has something left to be done gets a turn.
    pub(crate) fn queue_outstanding(&mut self) {
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
    }

    /// Whoever has something left to be done gets a turn now, and does not wait for a sink that failed.
    pub(crate) fn queue_all(&mut self) {
        self.queue_outstanding();
        for (_, uid) in std::mem::take(&mut self.delayed) {
            if let Some(record) = self.by_uid.get_mut(&uid) {
                record.turn = Turn::Ready;
                self.ready.push_back(uid);
            }
        }
    }

    /// The next pod whose turn it is. It gets no other until [`finish`](Self::finish).
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
            let uid = self.ready.pop_front()?;
            let Some(record) = self.by_uid.get_mut(&uid) else {
                continue;
            };
            record.turn = Turn::Sending;
            record.differs = false;
            // What the sink was not told yet goes first, even of a pod that is gone.
            let task = match record.orphaned && !record.is_unsent() {
                true => Task::Forget,
                false => Task::Send(Send {
                    status: record.status.clone(),
                    version: record.version,
                    finished: record.finished,
                    told: record.told.clone(),
                }),
            };
            return Some(Job {
                pod: record.pod.clone(),
                uid,
                task,
            });
        }
    }

    /// When the first wait ends.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// A turn has ended.
    pub(crate) fn finish(&mut self, uid: &PodUid, outcome: Outcome, now: Instant) {
        let Some(record) = self.by_uid.get_mut(uid) else {
            return;
        };
        record.turn = Turn::Idle;
        if !matches!(outcome, Outcome::Failed) {
            record.failures = 0;
        }
        match outcome {
            Outcome::Sent(version, told) => {
                if record.sent < version {
                    metrics::pod_status_synced(now.duration_since(record.changed_at));
                }
                record.sent = version;
                record.told = Some(told);
                if record.is_unsent() {
                    record.changed_at = now;
                }
                if record.is_unsent() || record.orphaned {
                    self.queue(uid);
                }
            }
            // A mirror pod may come; a pod that was deleted will be told of. Either way there is time.
            Outcome::Absent if record.orphaned => {
                record.sent = record.version;
                self.queue(uid);
            }
            Outcome::Absent => {}
            Outcome::Forgotten if !record.orphaned => {
                // It came back meanwhile.
                record.told = None;
                record.sent = 0;
                self.queue(uid);
            }
            Outcome::Gone | Outcome::Forgotten => {
                self.by_uid.remove(uid);
            }
            Outcome::Failed => {
                let wait = FIRST_RETRY * 2_u32.saturating_pow(record.failures.min(16));
                record.failures += 1;
                let at = now + wait.min(LAST_RETRY);
                record.turn = Turn::Delayed(at);
                self.delayed.insert((at, uid.clone()));
            }
        }
    }

    fn known(&self, uid: &PodUid) -> Option<&Record> {
        self.by_uid.get(uid).filter(|record| !record.orphaned)
    }

    /// The pod and its status, if this container of it is known and `differs` from what it is to be.
    fn of_container(
        &self,
        uid: &PodUid,
        container: &ContainerId,
        differs: impl FnOnce(&ContainerStatus) -> bool,
    ) -> Option<(Arc<Pod>, ApiPodStatus)> {
        let record = self.known(uid);
        let id = container.to_string();
        let status = record.and_then(|record| {
            let all = record
                .status
                .container_statuses
                .iter()
                .chain(&record.status.init_container_statuses);
            all.flatten()
                .find(|status| status.container_id.as_deref() == Some(id.as_str()))
        });
        let (Some(record), Some(status)) = (record, status) else {
            tracing::info!(%uid, container = id, "a probe's result is about a container that was not reported yet");
            return None;
        };
        differs(status).then(|| (record.pod.clone(), ApiPodStatus::clone(&record.status)))
    }

    /// `updateStatusInternal`
    fn update(
        &mut self,
        pod: &Arc<Pod>,
        mut status: ApiPodStatus,
        force: bool,
        mut finished: bool,
        now: &Now,
    ) -> Result<bool, Error> {
        let uid = pod.uid();
        let record = self.by_uid.get_mut(&uid);
        let no_status = ApiPodStatus::default();
        let old: &ApiPodStatus = match &record {
            Some(record) => &record.status,
            None => pod.status.as_ref().unwrap_or(&no_status),
        };
        if let Some(record) = &record
            && record.finished
            && !pod.is_static()
        {
            finished = true;
        }

        transitions::check(pod, old, &status)?;
        if is_terminal(phase(old)) && !is_terminal(phase(&status)) {
            tracing::error!(
                pod = %pod.key(), %uid, from = phase(old), to = phase(&status),
                "pod attempted to leave a terminal phase"
            );
            status.phase.clone_from(&old.phase);
            status.reason.clone_from(&old.reason);
            status.message.clone_from(&old.message);
        }
        set_transition_times(&mut status, old, &now.wall);
        status.start_time = old
            .start_time
            .clone()
            .or(status.start_time)
            .or_else(|| Some(now.wall.clone()));
        status.observed_generation = status.observed_generation.max(old.observed_generation);
        normalize(pod, &mut status);
        count_terminations(old, &status);

        match record {
            Some(record) => {
                record.pod = pod.clone();
                let came_back = std::mem::take(&mut record.orphaned);
                if !force && !came_back && same_by_kubelet(&record.status, &status) {
                    return Ok(false);
                }
                if !record.is_unsent() {
                    record.changed_at = now.instant;
                }
                record.status = Arc::new(status);
                record.version += 1;
                record.finished = finished;
            }
            None => {
                let record = Record {
                    pod: pod.clone(),
                    status: Arc::new(status),
                    version: 1,
                    sent: 0,
                    told: None,
                    finished,
                    changed_at: now.instant,
                    differs: false,
                    orphaned: false,
                    turn: Turn::Idle,
                    failures: 0,
                };
                self.by_uid.insert(uid.clone(), record);
            }
        }
        self.queue(&uid);
        Ok(true)
    }

    /// Gives the pod a turn, unless it has one, waits for a sink that failed, or is being sent: then it gets
    /// one afterwards.
    fn queue(&mut self, uid: &PodUid) {
        if let Some(record) = self.by_uid.get_mut(uid)
            && record.turn == Turn::Idle
        {
            record.turn = Turn::Ready;
            self.ready.push_back(uid.clone());
        }
    }
}

fn find_container<'a>(
    status: &'a mut ApiPodStatus,
    container: &ContainerId,
) -> Option<&'a mut ContainerStatus> {
    let id = container.to_string();
    status
        .container_statuses
        .iter_mut()
        .chain(&mut status.init_container_statuses)
        .flatten()
        .find(|status| status.container_id.as_deref() == Some(id.as_str()))
}

/// Each end of a container counts once: when it is reported first.
fn count_terminations(old: &ApiPodStatus, new: &ApiPodStatus) {
    let kinds = [
        ("container", &old.container_statuses, &new.container_statuses),
        (
            "init_container",
            &old.init_container_statuses,
            &new.init_container_statuses,
        ),
        (
            "ephemeral_container",
            &old.ephemeral_container_statuses,
            &new.ephemeral_container_statuses,
        ),
    ];
    for (kind, old, new) in kinds {
        for status in new.iter().flatten() {
            let had_ended = || {
                let old = old.iter().flatten().find(|old| old.name == status.name);
                old.is_some_and(|old| terminated(&old.state).is_some())
            };
            if let Some(end) = terminated(&status.state)
                && !had_ended()
            {
                metrics::container_terminated(kind, end.exit_code, end.reason.as_deref().unwrap_or_default());
            }
        }
    }
}
