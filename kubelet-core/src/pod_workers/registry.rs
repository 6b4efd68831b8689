//! All records, and every transition between their states. No tasks, clocks or locks.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use rustc_hash::FxHashMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::record::{Effect, PodRecord, PodWorkerState, Request};
use super::turns::Turns;
use super::update::{Target, UpdatePod};
use super::{PodWorkerSync, PodWorkersConfig};
use crate::changes::Changes;
use crate::explain::count_deferral;
use crate::pod_syncer::{PodStatusFn, SyncPodType};
use crate::{Error, Jitter, PodExt, PodKey, PodUid, SyncOutcome};

/// The records, the queue of pods with work, and the times of the next syncs.
pub(super) struct Registry {
    /// Boxed: a hash map has spare capacity for entries.
    records: FxHashMap<PodUid, Box<PodRecord>>,
    /// UIDs with work, each once: its record is marked `queued`.
    queue: VecDeque<PodUid>,
    timers: BTreeSet<(Instant, PodUid)>,
    turns: Turns,
    /// The runtime's pods are known, so a static pod can take its turn.
    first_list_was_read: bool,
    /// All desired pods were received once. A pod that is unknown after that does not run.
    synced: bool,
    /// The workers have stopped.
    closed: bool,
    /// Counts changes of the set of pods and of their states.
    changes: Changes,
    config: PodWorkersConfig,
    jitter: Jitter,
}

/// One piece of work for one pod.
pub(super) struct Work {
    pub(super) uid: PodUid,
    pub(super) state: PodWorkerState,
    pub(super) request: Request,
    /// The runtime status must be newer than this. `None`: any status is new enough.
    pub(super) newer_than: Option<Instant>,
    pub(super) grace_period: Option<Duration>,
    pub(super) status_fn: Option<PodStatusFn>,
    pub(super) cancel: CancellationToken,
    /// When its oldest update arrived.
    pub(super) updated_at: Option<Instant>,
}

/// The result of one piece of work.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) state: PodWorkerState,
    pub(super) result: Result<SyncOutcome, Error>,
    /// The latest time of the next sync, if it is in the future.
    pub(super) look_again_at: Option<Instant>,
}

impl Registry {
    pub(super) fn new(config: PodWorkersConfig, jitter: Jitter) -> Self {
        Self {
            records: FxHashMap::default(),
            queue: VecDeque::new(),
            timers: BTreeSet::new(),
            turns: Turns::default(),
            first_list_was_read: false,
            synced: false,
            closed: false,
            changes: Changes::default(),
            config,
            jitter,
        }
    }

    /// The workers have stopped, so a wait for the end of a pod would never end.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for record in self.records.values_mut() {
            record.completed.clear();
        }
    }

    /// Whether these pods have nothing left to do, or the workers have stopped.
    pub(super) fn all_finished(&self, uids: &[PodUid]) -> bool {
        let finished = |uid| self.records.get(uid).is_none_or(|record| record.finished);
        self.closed || uids.iter().all(finished)
    }

    /// A new static pod takes its turn after the pod of the same full name that the runtime runs and no source has listed to the
    /// workers. Housekeeping ends such a pod. An agent that was down while the manifest changed meets one.
    pub(super) fn let_earlier_pods_end(
        &mut self,
        key: &PodKey,
        uid: &PodUid,
        runs: &[(PodUid, PodKey)],
        now: Instant,
    ) {
        let namesakes = runs.iter().filter(|(other, of)| of == key && other != uid);
        let only_of_runtime = |uid: &&PodUid| {
            let record = self.records.get(*uid);
            record.is_none_or(|record| record.pod().is_none() && !record.finished)
        };
        // The first one, so that each run has the same order.
        let Some(earlier) = namesakes.map(|(uid, _)| uid).filter(only_of_runtime).min() else {
            return;
        };
        self.turns.lend(key, earlier.clone(), now + LENT_TURN);
        if self.records.contains_key(earlier) {
            // It is being ended already.
            self.turns.keep(key, earlier);
        }
    }

    /// The runtime's pods have been listed and read: static pods that waited for it take their turns, after these pods of
    /// their names.
    pub(super) fn first_list_was_read(&mut self, runs: &[(PodUid, PodKey)], now: Instant) {
        self.first_list_was_read = true;
        let records = self.records.iter();
        let waiting = records.filter(|(_, record)| record.waits_to_start_static());
        let mut waiting: Vec<_> = waiting
            .map(|(uid, record)| (uid.clone(), record.key.clone()))
            .collect();
        // Those of one name keep their order of arrival, which the turns have.
        waiting.sort_unstable();
        for (uid, key) in waiting {
            self.let_earlier_pods_end(&key, &uid, runs, now);
            self.enqueue(&uid);
        }
    }

    /// Whether the pod waits until [`first_list_was_read`](Self::first_list_was_read).
    pub(super) fn awaits_first_list(&self, record: &PodRecord) -> bool {
        !self.first_list_was_read && record.waits_to_start_static()
    }

    /// Applies an update. `runtime` returns whether no container of the pod runs, if that is known; it is called only
    /// for unknown pods.
    pub(super) fn update(
        &mut self,
        update: UpdatePod,
        now: Instant,
        runtime: impl FnOnce(&PodUid) -> Option<bool>,
    ) {
        if self.closed {
            return;
        }
        let uid = match &update.target {
            // All maps share one UID text.
            Target::Pod(pod) => match self.records.get_key_value(pod.uid_str()) {
                Some((uid, _)) => uid.clone(),
                None => pod.uid(),
            },
            Target::Runtime(running) => running.uid.clone(),
        };
        let first = !self.records.contains_key(&uid);
        if first {
            if matches!(update.target, Target::Runtime(_)) && update.update_type != SyncPodType::Kill {
                return;
            }
            let key = match &update.target {
                Target::Pod(pod) => pod.key(),
                Target::Runtime(running) => running.key.clone(),
            };
            match &update.target {
                Target::Runtime(_) => self.turns.keep(&key, &uid),
                // It shares the name of a static pod, and will not end for it.
                Target::Pod(pod) if !pod.is_static() && self.turns.started(&key) == Some(&uid) => {
                    if let Some(next) = self.turns.leave(&key, &uid) {
                        self.enqueue(&next);
                    }
                }
                Target::Pod(_) => {}
            }
            let over = update.target.pod().is_some_and(|pod| pod.is_terminal_phase());
            // A pod that ended before the agent started only needs its clean-up.
            let record = match over && runtime(&uid) == Some(true) {
                true => PodRecord::already_terminated(key),
                false => PodRecord::new(key),
            };
            self.records.insert(uid.clone(), Box::new(record));
        }
        let Some(record) = self.records.get_mut(&uid) else {
            return;
        };
        let before = record.place();
        let effect = record.update(update, first, now);
        if first || record.place() != before {
            self.changes.note();
        }
        if effect == Effect::Ignored {
            return;
        }
        if let (true, Some(pod)) = (!record.started && !record.termination_requested, record.pod())
            && pod.is_static()
        {
            self.turns.wait(&record.key, &uid);
        }
        if effect == Effect::Interrupts
            && let Some(running) = &record.in_flight
        {
            running.cancel();
        }
        self.enqueue(&uid);
    }

    /// Applies an update that needs no work. A requested termination still takes effect.
    pub(super) fn observe_pod(&mut self, pod: &Arc<Pod>) {
        let record = self.records.get_mut(pod.uid_str());
        if let Some(record) = record.filter(|record| record.state() == PodWorkerState::Sync) {
            let requests = [&mut record.pending, &mut record.active];
            for request in requests.into_iter().flatten() {
                request.target = Target::Pod(pod.clone());
            }
        }
    }

    /// The next piece of work, if there is one (`startPodSync`).
    pub(super) fn next(&mut self, now: Instant) -> Option<Work> {
        while let Some(uid) = self.queue.pop_front() {
            if let Some(work) = self.begin(&uid, now) {
                return Some(work);
            }
        }
        self.queue.shrink_to(KEPT_ROOM);
        None
    }

    fn begin(&mut self, uid: &PodUid, now: Instant) -> Option<Work> {
        let record = self.records.get_mut(uid)?;
        record.queued = false;
        if record.in_flight.is_some() || record.pending.is_none() {
            return None;
        }
        let runtime_only = record
            .pending
            .as_ref()
            .is_some_and(|request| matches!(request.target, Target::Runtime(_)));
        if !record.started && !runtime_only && !self.may_start(uid, now) {
            count_deferral("turn");
            return None;
        }
        let record = self.records.get_mut(uid)?;
        let request = record.pending.take()?;
        if let Some(pod) = request.target.pod().filter(|_| !record.started) {
            let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
            metrics::histogram!("kubelet_containers_per_pod_count").record(containers as f64);
        }
        record.started |= !runtime_only;
        record.active = Some(request.clone());
        let state = record.state();
        if state == PodWorkerState::Terminating {
            record.termination_started = true;
        }
        let cancel = CancellationToken::new();
        record.in_flight = Some(cancel.clone());
        record.began_at = Some(now);
        let work = Work {
            uid: uid.clone(),
            state,
            request,
            newer_than: record.synced_at,
            grace_period: record.grace_period(),
            status_fn: record.status_fn.clone(),
            cancel,
            updated_at: record.updated_at.take(),
        };
        self.set_timer(uid, None);
        Some(work)
    }

    /// Whether a pod that was not started may start (`allowPodStart`). One that never will is finished here.
    fn may_start(&mut self, uid: &PodUid, now: Instant) -> bool {
        let Some(record) = self.records.get_mut(uid) else {
            return false;
        };
        let is_static = record.pod().is_some_and(|pod| pod.is_static());
        if !is_static {
            return true;
        }
        // One that ended in an earlier run of the agent is reported, even if the runtime has nothing of it.
        if record.pod().is_some_and(|pod| pod.is_terminal_phase()) {
            return true;
        }
        if record.termination_requested && !record.terminated && !record.observed_runtime {
            // It was terminated before it started: it has no containers.
            record.complete_terminating();
            self.finish(uid);
            return false;
        }
        let key = record.key.clone();
        if record.termination_requested {
            return true;
        }
        if !self.first_list_was_read {
            return false;
        }
        let records = &self.records;
        let is_its_turn = self.turns.take(&key, uid, now, |waiting| {
            records
                .get(waiting)
                .is_some_and(|record| !record.termination_requested)
        });
        if !is_its_turn {
            self.set_timer(uid, self.turns.lent_until(&key));
        }
        is_its_turn
    }

    /// Applies the result of work that [`next`](Self::next) returned (`completeSync`, `completeTerminating`,
    /// `completeTerminated`, `completeWork`).
    pub(super) fn complete(&mut self, uid: &PodUid, ended: Ended, now: Instant) {
        let before = self.record(uid).map(PodRecord::place);
        self.take_end(uid, ended, now);
        if self.record(uid).map(PodRecord::place) != before {
            self.changes.note();
        }
    }

    fn take_end(&mut self, uid: &PodUid, ended: Ended, now: Instant) {
        let Ended {
            state,
            result,
            look_again_at,
        } = ended;
        let Some(record) = self.records.get_mut(uid) else {
            return;
        };
        record.in_flight = None;
        record.began_at = None;
        record.last_error = result.as_ref().err().map(ToString::to_string);
        if !matches!(result, Err(Error::Cancelled)) {
            record.synced_at = Some(now);
        }
        let runtime_only = record
            .active
            .as_ref()
            .is_some_and(|request| matches!(request.target, Target::Runtime(_)));
        let moved_on = match (&result, state) {
            (Err(_), _) => false,
            (Ok(_), PodWorkerState::Terminated) => {
                self.finish(uid);
                return;
            }
            (Ok(_), PodWorkerState::Terminating) if runtime_only => {
                // No source lists it: its record is not needed after its end.
                record.complete_terminating();
                self.finish(uid);
                self.records.remove(uid);
                return;
            }
            (Ok(_), PodWorkerState::Terminating) => {
                record.complete_terminating();
                true
            }
            (Ok(outcome), PodWorkerState::Sync) => {
                let over = outcome.terminal && !record.termination_requested;
                if over {
                    record.termination_requested = true;
                    record.termination_started = true;
                    let pod = record.pod().cloned();
                    record.shrink_grace_period(pod.as_ref(), None);
                }
                over
            }
        };
        let again = state == PodWorkerState::Sync && result.as_ref().is_ok_and(|outcome| outcome.again);
        if (moved_on || again) && record.repeat() || record.pending.is_some() {
            self.enqueue(uid);
            return;
        }
        let wake_at = match result {
            Ok(_) => now + self.jitter.apply(self.config.resync_interval, RESYNC_JITTER),
            Err(error) => {
                count_deferral("retry");
                now + self.jitter.apply(self.back_off(&error, now), BACK_OFF_JITTER)
            }
        };
        let wake_at = look_again_at
            .filter(|at| *at > now)
            .map_or(wake_at, |at| at.min(wake_at));
        self.set_timer(uid, Some(wake_at));
    }

    fn back_off(&self, error: &Error, now: Instant) -> Duration {
        match error {
            Error::NetworkNotReady { .. } => BACK_OFF_ON_TRANSIENT_ERROR,
            Error::BackOff { until, .. } => until
                .saturating_duration_since(now)
                .min(self.config.resync_interval),
            _ => self.config.back_off_period.min(self.config.resync_interval),
        }
    }

    /// When to call [`fire_timers`](Self::fire_timers) next.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Queues the pods whose next sync is due.
    pub(super) fn fire_timers(&mut self, now: Instant) {
        while let Some((_, uid)) = self.timers.first().filter(|(at, _)| *at <= now).cloned() {
            self.set_timer(&uid, None);
            if self.records.get_mut(&uid).is_some_and(|record| record.repeat()) {
                self.enqueue(&uid);
            }
        }
    }

    /// Whether [`next`](Self::next) has work.
    pub(super) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Drops the records of finished pods that are no longer desired, and terminates other pods that are not desired
    /// (`SyncKnownPods`).
    pub(super) fn sync_known_pods(&mut self, desired: &HashSet<PodUid>) -> HashMap<PodUid, PodWorkerSync> {
        self.synced = true;
        let uids: Vec<PodUid> = self.records.keys().cloned().collect();
        let mut known = HashMap::with_capacity(uids.len());
        for uid in uids {
            let orphan = !desired.contains(&uid);
            if self.remove_terminated(&uid, orphan) {
                continue;
            }
            let Some(record) = self.records.get(&uid) else {
                continue;
            };
            let pod = record.pod();
            let sync = PodWorkerSync {
                state: record.state(),
                orphan,
                has_config: pod.is_some(),
                is_static: pod.is_some_and(|pod| pod.is_static()),
            };
            known.insert(uid, sync);
        }
        known
    }

    /// `removeTerminatedWorker`: returns whether the record was removed.
    fn remove_terminated(&mut self, uid: &PodUid, orphan: bool) -> bool {
        let Some(record) = self.records.get_mut(uid) else {
            return true;
        };
        if !orphan && !record.restart_requested {
            return false;
        }
        if !record.finished {
            if !orphan {
                return false;
            }
            record.deleted = true;
            let never_began = !record.started && !record.observed_runtime && record.in_flight.is_none();
            if !never_began {
                if !record.termination_requested {
                    record.termination_requested = true;
                    let pod = record.pod().cloned();
                    record.shrink_grace_period(pod.as_ref(), None);
                    if let Some(running) = &record.in_flight {
                        running.cancel();
                    }
                    record.repeat();
                    self.enqueue(uid);
                } else if record.in_flight.is_none() && record.repeat() {
                    // It has no source that would update it, so each housekeeping retries it.
                    self.enqueue(uid);
                }
                return false;
            }
        }
        self.finish(uid);
        self.records.remove(uid);
        self.changes.note();
        true
    }

    /// Removes the pod from the turns and timers: it has finished.
    fn finish(&mut self, uid: &PodUid) {
        self.set_timer(uid, None);
        let Some(record) = self.records.get_mut(uid) else {
            return;
        };
        self.changes.note();
        record.finished = true;
        record.termination_requested = true;
        record.termination_started = true;
        record.terminated = true;
        record.pending = None;
        let key = record.key.clone();
        if let Some(next) = self.turns.leave(&key, uid) {
            self.enqueue(&next);
        }
    }

    fn enqueue(&mut self, uid: &PodUid) {
        if let Some(record) = self.records.get_mut(uid)
            && record.pending.is_some()
            && record.in_flight.is_none()
            && !record.queued
        {
            record.queued = true;
            self.queue.push_back(uid.clone());
        }
    }

    fn set_timer(&mut self, uid: &PodUid, at: Option<Instant>) {
        let Some(record) = self.records.get_mut(uid) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut record.wake_at, at) {
            self.timers.remove(&(before, uid.clone()));
        }
        if let Some(at) = at {
            self.timers.insert((at, uid.clone()));
        }
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Every pod that has a record.
    pub(super) fn uids(&self) -> impl Iterator<Item = &PodUid> {
        self.records.keys()
    }

    /// The pods that are ending and have not ended.
    pub(super) fn terminating(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let records = self.records.values();
        let terminating = records.filter(|record| record.state() == PodWorkerState::Terminating);
        terminating.filter_map(|record| record.pod())
    }

    pub(super) fn record(&self, uid: &PodUid) -> Option<&PodRecord> {
        self.records.get(uid).map(|record| &**record)
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// The static pod that runs under this full name, if there is one.
    pub(super) fn started_uid(&self, key: &PodKey) -> Option<&PodUid> {
        self.turns.started(key)
    }

    /// The record of the static pod that runs under this full name, if there is one.
    pub(super) fn started_static(&self, key: &PodKey) -> Option<&PodRecord> {
        self.record(self.turns.started(key)?)
    }
}

/// The capacity that is kept: at first all pods have work at once, later only a few do.
const KEPT_ROOM: usize = 64;

/// For how long a static pod waits at most for a pod of its full name that only the runtime knows. Housekeeping ends such a pod once
/// all sources are ready. But the API server may be the static pod that waits.
const LENT_TURN: Duration = Duration::from_secs(10);

/// `workerResyncIntervalJitterFactor`
const RESYNC_JITTER: f64 = 0.5;
/// `workerBackOffPeriodJitterFactor`
const BACK_OFF_JITTER: f64 = 0.5;
/// `backOffOnTransientErrorPeriod`
const BACK_OFF_ON_TRANSIENT_ERROR: Duration = Duration::from_secs(1);
