//! The newest known runtime status of each pod, and the wait for a newer one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::runtime::PodStatus;
use crate::{PodKey, PodUid, Result};

/// What the runtime last said of each pod. The PLEG writes it and nobody else does; pod workers wait in it
/// for a status that is newer than what they did last.
///
/// A cheap handle; clones share one cache. Answers to the kubelet's `container.Cache`.
#[derive(Clone, Debug, Default)]
pub struct PodCache {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    pods: HashMap<PodUid, Entry>,
    /// Every pod's entry, a missing one too, is at least as new as this.
    observed_all_at: Option<Instant>,
    waiters: HashMap<PodUid, Vec<Waiter>>,
}

#[derive(Debug)]
struct Entry {
    status: Result<Arc<PodStatus>>,
    modified: Instant,
}

#[derive(Debug)]
struct Waiter {
    newer_than: Instant,
    wake: oneshot::Sender<Result<Arc<PodStatus>>>,
}

impl PodCache {
    /// An empty cache: nothing was observed yet, so every wait waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The status of a pod as last seen, or the error of the last try to read it. A pod that the runtime
    /// does not have, or was not looked at yet, has an empty status.
    pub fn get(&self, uid: &PodUid) -> Result<Arc<PodStatus>> {
        let inner = self.inner.lock();
        match inner.pods.get(uid) {
            Some(entry) => entry.status.clone(),
            None => Ok(empty_status(
                uid,
                inner.observed_all_at.unwrap_or_else(Instant::now),
            )),
        }
    }

    /// When the pod's entry was observed: the time of the entry, or of the whole cache if that is newer.
    /// `None` while nothing was observed.
    pub fn observed_at(&self, uid: &PodUid) -> Option<Instant> {
        let inner = self.inner.lock();
        inner
            .pods
            .get(uid)
            .map(|entry| entry.modified)
            .max(inner.observed_all_at)
    }

    /// Waits until the pod's status is known to be newer than `time`, and returns it (`GetNewerThan`). An
    /// error to read the status counts as news: the waiter wakes with it.
    ///
    /// Waits for as long as the PLEG needs; put a deadline around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn get_newer_than(&self, uid: &PodUid, time: Instant) -> Result<Arc<PodStatus>> {
        let woken = {
            let mut inner = self.inner.lock();
            if let Some(status) = inner.newer_than(uid, time) {
                return status;
            }
            let (wake, woken) = oneshot::channel();
            let waiters = inner.waiters.entry(uid.clone()).or_default();
            // Those who gave up have left their place.
            waiters.retain(|waiter| !waiter.wake.is_closed());
            waiters.push(Waiter {
                newer_than: time,
                wake,
            });
            woken
        };
        match woken.await {
            Ok(status) => status,
            // The sender lives in the cache, of which we hold a handle, until it has sent.
            Err(_) => self.get(uid),
        }
    }

    /// Stores what was read of a pod at `observed`: the time before the runtime was asked. Wakes who waited
    /// for it. Only the PLEG calls this.
    pub fn set(&self, uid: &PodUid, status: Result<Arc<PodStatus>>, observed: Instant) {
        let mut inner = self.inner.lock();
        inner.pods.insert(
            uid.clone(),
            Entry {
                status,
                modified: observed,
            },
        );
        inner.wake(uid);
    }

    /// Forgets a pod that the runtime does not have any more. Only the PLEG calls this.
    pub fn delete(&self, uid: &PodUid) {
        self.inner.lock().pods.remove(uid);
    }

    /// States that everything in the cache is at least as new as `time`, wakes all who waited for that
    /// (`UpdateTime`). Only the PLEG calls this, after each pod of a list was set.
    pub fn update_time(&self, time: Instant) {
        let mut inner = self.inner.lock();
        inner.observed_all_at = Some(time);
        let waiting: Vec<PodUid> = inner.waiters.keys().cloned().collect();
        for uid in waiting {
            inner.wake(&uid);
        }
    }
}

impl Inner {
    fn newer_than(&self, uid: &PodUid, time: Instant) -> Option<Result<Arc<PodStatus>>> {
        let all = self.observed_all_at.filter(|observed| *observed > time);
        match self.pods.get(uid) {
            Some(entry) => (entry.modified > time || all.is_some()).then(|| entry.status.clone()),
            None => all.map(|observed| Ok(empty_status(uid, observed))),
        }
    }

    fn wake(&mut self, uid: &PodUid) {
        let Some(waiters) = self.waiters.remove(uid) else {
            return;
        };
        let mut still_waiting = Vec::new();
        for waiter in waiters {
            match self.newer_than(uid, waiter.newer_than) {
                // A waiter that gave up is no concern of ours.
                Some(status) => drop(waiter.wake.send(status)),
                None if waiter.wake.is_closed() => {}
                None => still_waiting.push(waiter),
            }
        }
        if !still_waiting.is_empty() {
            self.waiters.insert(uid.clone(), still_waiting);
        }
    }
}

fn empty_status(uid: &PodUid, observed: Instant) -> Arc<PodStatus> {
    Arc::new(PodStatus::empty(uid.clone(), PodKey::new("", ""), observed))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::Error;

    fn status(uid: &PodUid, at: Instant) -> Result<Arc<PodStatus>> {
        Ok(empty_status(uid, at))
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_the_first_entry_that_is_newer() {
        let (cache, uid, other) = (PodCache::new(), PodUid::from("a"), PodUid::from("b"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut wait = Box::pin(cache.get_newer_than(&uid, at(5)));
        assert!(wait.as_mut().now_or_never().is_none());
        cache.set(&uid, status(&uid, at(5)), at(5));
        cache.set(&other, status(&other, at(9)), at(9));
        assert!(
            wait.as_mut().now_or_never().is_none(),
            "as old is not newer, another pod is not this one"
        );
        cache.set(&uid, status(&uid, at(6)), at(6));
        assert_eq!(wait.now_or_never().unwrap().unwrap().timestamp, at(6));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_the_whole_cache_counts_for_pods_it_does_not_have() {
        let (cache, uid) = (PodCache::new(), PodUid::from("a"));
        let start = Instant::now();
        let mut wait = Box::pin(cache.get_newer_than(&uid, start));
        cache.update_time(start);
        assert!(wait.as_mut().now_or_never().is_none());
        cache.update_time(start + Duration::from_secs(1));
        let found = wait.now_or_never().unwrap().unwrap();
        assert!(found.containers.is_empty() && found.uid == uid);
        assert_eq!(cache.observed_at(&uid), Some(start + Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_wakes_and_those_who_gave_up_leave_nothing() {
        let (cache, uid) = (PodCache::new(), PodUid::from("a"));
        let start = Instant::now();
        for _ in 0..100 {
            assert!(cache.get_newer_than(&uid, start).now_or_never().is_none());
        }
        assert!(cache.inner.lock().waiters[&uid].len() <= 1);
        let mut wait = Box::pin(cache.get_newer_than(&uid, start));
        assert!(wait.as_mut().now_or_never().is_none());
        cache.set(&uid, Err(Error::Cancelled), start + Duration::from_secs(1));
        assert!(wait.now_or_never().unwrap().is_err());
        assert!(cache.inner.lock().waiters.is_empty());
    }
}
