//! What a running PLEG shares with those who hold its handle: requests in, events and health out.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{PlegEvents, PlegHandle, PlegPublisher, PodLifecycleEvents, PodUid, Result};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::{Error, Inspection};

/// The handle of a PLEG.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` once the PLEG has ended: subscriptions end with it, handles may stay.
    publisher: Mutex<Option<PlegPublisher>>,
    asked: Mutex<Asked>,
    relist_asked: Notify,
    health: Mutex<Health>,
    /// Those who wait for an [`Inspection`]; `None` once the PLEG has ended.
    inspectors: Mutex<Option<Vec<oneshot::Sender<Inspection>>>>,
    inspection_asked: Notify,
}

/// Sets, not queues: a pod that is requested many times is listed once, and no request is dropped.
#[derive(Debug, Default)]
struct Asked {
    relist: FxHashMap<PodUid, Request>,
    /// A list of all pods is requested.
    list: bool,
    reinspect: FxHashSet<PodUid>,
    lists_started: u64,
}

/// A pod to list alone.
#[derive(Debug)]
struct Request {
    /// How many lists had been started when it was last requested: a later list shows the pod as well. A count and not a
    /// time, since two things can happen at the same time.
    lists_before: u64,
    /// When it was first requested.
    since: Instant,
}

#[derive(Debug)]
struct Health {
    threshold: Duration,
    listed_at: Option<Instant>,
    /// Until then no list was due.
    rested_until: Option<Instant>,
    last_failure: Option<kubelet_core::Error>,
}

impl Shared {
    pub(crate) fn new(threshold: Duration) -> Self {
        Self {
            publisher: Mutex::new(Some(PlegPublisher::new())),
            asked: Mutex::default(),
            relist_asked: Notify::new(),
            health: Mutex::new(Health {
                threshold,
                listed_at: None,
                rested_until: None,
                last_failure: None,
            }),
            inspectors: Mutex::new(Some(Vec::new())),
            inspection_asked: Notify::new(),
        }
    }

    pub(crate) fn set_threshold(&self, threshold: Duration) {
        self.health.lock().threshold = threshold;
    }

    pub(crate) fn publish(&self, changed: &mut Vec<(PodUid, PodLifecycleEvents)>) {
        if !changed.is_empty()
            && let Some(publisher) = &*self.publisher.lock()
        {
            publisher.publish(changed);
        }
        changed.clear();
    }

    /// A list begins; returns its number, from 1.
    pub(crate) fn list_started(&self) -> u64 {
        let mut asked = self.asked.lock();
        asked.lists_started += 1;
        asked.lists_started
    }

    pub(crate) fn list_succeeded(&self, started: Instant) {
        let mut health = self.health.lock();
        health.listed_at = Some(started);
        health.last_failure = None;
    }

    /// After the last successful list, no further list is due until then.
    pub(crate) fn rests_until(&self, time: Instant) {
        self.health.lock().rested_until = Some(time);
    }

    pub(crate) fn list_failed(&self, error: kubelet_core::Error) {
        self.health.lock().last_failure = Some(error);
    }

    /// Waits for a request to list a pod alone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn relist_asked(&self) {
        self.relist_asked.notified().await;
    }

    /// Takes up to `limit` of the pods to list alone. Removes those that list number `served` or an earlier one has shown,
    /// and leaves the `busy` ones.
    pub(crate) fn take_relists(
        &self,
        served: u64,
        limit: usize,
        busy: impl Fn(&PodUid) -> bool,
    ) -> Vec<PodUid> {
        let mut asked = self.asked.lock();
        asked.relist.retain(|_, request| request.lists_before >= served);
        asked
            .relist
            .extract_if(|uid, _| !busy(uid))
            .map(|(uid, _)| uid)
            .take(limit)
            .collect()
    }

    /// Gives back a request that was taken, so that list number `list` shows the pod.
    pub(crate) fn ask_relist_again(&self, uid: PodUid, list: u64) {
        self.asked.lock().relist.entry(uid).or_insert_with(|| Request {
            lists_before: list.saturating_sub(1),
            since: Instant::now(),
        });
    }

    /// Requests a list of all pods, as soon as the period allows.
    pub(crate) fn ask_list(&self) {
        self.asked.lock().list = true;
        self.relist_asked.notify_one();
    }

    pub(crate) fn take_list_asked(&self) -> bool {
        std::mem::take(&mut self.asked.lock().list)
    }

    /// Requests lists of the single pods that the next list should inspect again.
    pub(crate) fn relist_reinspects(&self) {
        let reinspect: Vec<PodUid> = self.asked.lock().reinspect.iter().cloned().collect();
        for uid in reinspect {
            self.request_relist(&uid);
        }
    }

    /// How many pods wait to be listed alone, and since when the first of them waits.
    pub(crate) fn relists_waiting(&self) -> (usize, Option<Instant>) {
        let asked = self.asked.lock();
        let since = asked.relist.values().map(|request| request.since).min();
        (asked.relist.len(), since)
    }

    /// Requests an inspection; no sender is kept once the PLEG has ended.
    pub(crate) fn ask_inspection(&self) -> oneshot::Receiver<Inspection> {
        let (answer, answered) = oneshot::channel();
        if let Some(inspectors) = &mut *self.inspectors.lock() {
            inspectors.push(answer);
        }
        self.inspection_asked.notify_one();
        answered
    }

    /// Waits until somebody requests an inspection.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn inspection_asked(&self) -> Vec<oneshot::Sender<Inspection>> {
        self.inspection_asked.notified().await;
        self.inspectors
            .lock()
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    pub(crate) fn has_reinspects(&self) -> bool {
        !self.asked.lock().reinspect.is_empty()
    }

    pub(crate) fn take_reinspects(&self) -> FxHashSet<PodUid> {
        std::mem::take(&mut self.asked.lock().reinspect)
    }

    pub(crate) fn take_reinspect(&self, uid: &PodUid) -> bool {
        self.asked.lock().reinspect.remove(uid)
    }
}

impl PlegHandle for Shared {
    fn subscribe(&self) -> PlegEvents {
        match &*self.publisher.lock() {
            Some(publisher) => publisher.subscribe(),
            // Ends at once, as its publisher does.
            None => PlegPublisher::new().subscribe(),
        }
    }

    fn request_relist(&self, uid: &PodUid) {
        {
            let mut asked = self.asked.lock();
            let lists_started = asked.lists_started;
            match asked.relist.get_mut(uid) {
                Some(request) => request.lists_before = lists_started,
                None => {
                    let request = Request {
                        lists_before: lists_started,
                        since: Instant::now(),
                    };
                    asked.relist.insert(uid.clone(), request);
                }
            }
        }
        self.relist_asked.notify_one();
    }

    fn request_reinspect(&self, uid: &PodUid) {
        self.asked.lock().reinspect.insert(uid.clone());
        // While lists are rare, one of this pod alone is to be made.
        self.relist_asked.notify_one();
    }

    fn healthy(&self) -> Result<()> {
        let health = self.health.lock();
        let last_failure = health.last_failure.clone();
        let threshold = health.threshold;
        let problem = match health
            .listed_at
            .map(|listed_at| {
                health
                    .rested_until
                    .map_or(listed_at, |rested| rested.max(listed_at))
            })
            .map(|seen| seen.elapsed())
        {
            Some(elapsed) if elapsed <= threshold => return Ok(()),
            Some(elapsed) => Error::Stale {
                elapsed,
                threshold,
                last_failure,
            },
            None => Error::NotYetListed { last_failure },
        };
        Err(kubelet_core::Error::runtime("GetPods", problem))
    }
}

/// The PLEG's own handle: when it is dropped, all subscriptions end, even if the PLEG never ran.
#[derive(Debug)]
pub(crate) struct Owner(pub(crate) Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.publisher.lock().take();
        self.0.inspectors.lock().take();
    }
}
