//! What a running PLEG shares with those who hold its handle: requests in, events and health out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{PlegEvents, PlegHandle, PlegPublisher, PodLifecycleEvent, PodUid, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Error;

/// The handle of a PLEG.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` once the PLEG has ended: subscriptions end with it, handles may stay.
    publisher: Mutex<Option<PlegPublisher>>,
    asked: Mutex<Asked>,
    relist_asked: Notify,
    health: Mutex<Health>,
}

/// Sets, not queues: however often a pod is asked for, it is looked at once, and no request is dropped.
#[derive(Debug, Default)]
struct Asked {
    /// Pods to list alone, each with how many lists had been started when it was last asked for: a later one
    /// serves it as well. A count and not a time, since two things can happen at one time.
    relist: HashMap<PodUid, u64>,
    reinspect: HashSet<PodUid>,
    lists_started: u64,
}

#[derive(Debug)]
struct Health {
    threshold: Duration,
    listed_at: Option<Instant>,
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
                last_failure: None,
            }),
        }
    }

    pub(crate) fn set_threshold(&self, threshold: Duration) {
        self.health.lock().threshold = threshold;
    }

    pub(crate) fn publish(&self, events: &[PodLifecycleEvent]) {
        if let Some(publisher) = &*self.publisher.lock() {
            publisher.publish(events);
        }
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

    /// Takes up to `limit` of the pods to be listed alone, forgets those that list number `served` or an
    /// earlier one served, and leaves the `busy` ones.
    pub(crate) fn take_relists(
        &self,
        served: u64,
        limit: usize,
        busy: impl Fn(&PodUid) -> bool,
    ) -> Vec<PodUid> {
        let mut asked = self.asked.lock();
        asked.relist.retain(|_, asked_before| *asked_before >= served);
        asked
            .relist
            .extract_if(|uid, _| !busy(uid))
            .map(|(uid, _)| uid)
            .take(limit)
            .collect()
    }

    /// Gives back a request that was taken, for list number `list` to serve.
    pub(crate) fn ask_relist_again(&self, uid: PodUid, list: u64) {
        self.asked
            .lock()
            .relist
            .entry(uid)
            .or_insert(list.saturating_sub(1));
    }

    pub(crate) fn take_reinspects(&self) -> HashSet<PodUid> {
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
            asked.relist.insert(uid.clone(), lists_started);
        }
        self.relist_asked.notify_one();
    }

    fn request_reinspect(&self, uid: &PodUid) {
        self.asked.lock().reinspect.insert(uid.clone());
    }

    fn healthy(&self) -> Result<()> {
        let health = self.health.lock();
        let last_failure = health.last_failure.clone();
        let threshold = health.threshold;
        let problem = match health.listed_at.map(|listed_at| listed_at.elapsed()) {
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

/// The PLEG's own end: when it is dropped, run or not, all subscriptions end.
#[derive(Debug)]
pub(crate) struct Owner(pub(crate) Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.publisher.lock().take();
    }
}
