//! All probes, and when each is due.

use std::collections::BTreeSet;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::ProbeResultCache;
use super::schedule::Ticker;
use super::worker::Worker;
use crate::PodUid;

pub(super) type WorkerId = u64;

#[derive(Default)]
pub(super) struct ProbeTable {
    pub(super) pods: FxHashMap<PodUid, Vec<WorkerId>>,
    pub(super) workers: FxHashMap<WorkerId, Entry>,
    pub(super) due: BTreeSet<(Instant, WorkerId)>,
    next_id: WorkerId,
}

pub(super) struct Entry {
    pub(super) uid: PodUid,
    pub(super) worker: Worker,
    period: Duration,
    /// Starts with the first check.
    pub(super) ticker: Option<Ticker>,
    pub(super) due: Option<Instant>,
    pub(super) act: Option<AbortHandle>,
    /// It was requested to run early; its period then starts again.
    pub(super) triggered: bool,
    /// Its container will not restart.
    pub(super) ended: bool,
}

impl Entry {
    pub(super) fn take_tick(&mut self, now: Instant) {
        let triggered = std::mem::take(&mut self.triggered);
        match &mut self.ticker {
            Some(ticker) if !triggered => ticker.take(now),
            ticker => *ticker = Some(Ticker::starting(now, self.period)),
        }
    }
}

impl ProbeTable {
    pub(super) fn insert(&mut self, uid: PodUid, worker: Worker, period: Duration, due: Instant) -> WorkerId {
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

    pub(super) fn remove(&mut self, id: WorkerId, results: &ProbeResultCache) {
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

    pub(super) fn set_due(&mut self, id: WorkerId, at: Instant) {
        if let Some(entry) = self.workers.get_mut(&id) {
            if let Some(before) = entry.due.replace(at) {
                self.due.remove(&(before, id));
            }
            self.due.insert((at, id));
        }
    }

    /// Schedules its next tick; now if an early run was requested.
    pub(super) fn schedule_next(&mut self, id: WorkerId, now: Instant) {
        let Some(entry) = self.workers.get(&id) else {
            return;
        };
        let next = match &entry.ticker {
            Some(ticker) if !entry.triggered => ticker.next().max(now),
            _ => now,
        };
        self.set_due(id, next);
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<WorkerId> {
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
