//! The latest runtime status of each pod, and the wait for a newer one.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::changes::Changes;
use crate::runtime::PodStatus;
use crate::{Error, PodKey, PodUid, Result};

/// The latest runtime status of each pod. Only the PLEG writes it. Pod workers wait in it for a status that is newer
/// than their last sync.
///
/// A cheap handle; clones share one cache. Answers to the kubelet's `container.Cache`.
#[derive(Clone, Debug, Default)]
pub struct PodCache {
    inner: Arc<Mutex<Inner>>,
    wait_began: Arc<Notify>,
    /// Counts changes of the set of pods and of which pods may run.
    changes: Changes,
}

#[derive(Debug, Default)]
struct Inner {
    pods: FxHashMap<PodUid, Entry>,
    /// Every entry, also a missing one, is at least this new, except for those that lag.
    observed_all_at: Option<Instant>,
    /// Pods that `observed_all_at` does not apply to, each with the last value that did.
    lagging: FxHashMap<PodUid, Option<Instant>>,
    waiters: FxHashMap<PodUid, Vec<Waiter>>,
    /// Counts entries that were set or removed.
    version: u64,
}

#[derive(Debug)]
struct Entry {
    /// Boxed: errors are large and rare.
    status: Result<Arc<PodStatus>, Box<Error>>,
    observed: Instant,
    /// Whether a container of the pod may run. Stored, since the old status is no longer in the processor's cache when
    /// a new one arrives.
    may_run: bool,
}

#[derive(Debug)]
struct Waiter {
    /// `None`: the first observation is enough.
    newer_than: Option<Instant>,
    wake: oneshot::Sender<Result<Arc<PodStatus>>>,
}

impl PodCache {
    /// An empty cache. Every wait blocks until something was observed.
    pub fn new() -> Self {
        Self::default()
    }

    /// The latest status of a pod, or the error of the last attempt to read it. A pod that the runtime does not have,
    /// or that was not observed yet, has an empty status.
    pub fn get(&self, uid: &PodUid) -> Result<Arc<PodStatus>> {
        let inner = self.inner.lock();
        match inner.pods.get(uid) {
            Some(entry) => entry.status(),
            None => Ok(empty_status(uid, inner.all_at(uid).unwrap_or_else(Instant::now))),
        }
    }

    /// When the pod was observed last, alone or with the whole cache. `None` before the first observation.
    pub fn observed_at(&self, uid: &PodUid) -> Option<Instant> {
        let inner = self.inner.lock();
        inner
            .pods
            .get(uid)
            .map(|entry| entry.observed)
            .max(inner.all_at(uid))
    }

    /// Whether the runtime has listed its pods at least once, so that a pod that the cache does not have is not there.
    pub fn was_listed(&self) -> bool {
        self.inner.lock().all_at(&PodUid::from("")).is_some()
    }

    /// Whether the cache holds anything of a pod, a waiter included.
    pub(crate) fn keeps(&self, uid: &PodUid) -> bool {
        let inner = self.inner.lock();
        inner.pods.contains_key(uid) || inner.waiters.contains_key(uid) || inner.lagging.contains_key(uid)
    }

    /// The pods that may have a running container. Pods whose status could not be read, or was not read yet, are included, without a
    /// name.
    pub fn running_pods(&self) -> Vec<(PodUid, PodKey)> {
        let inner = self.inner.lock();
        let running = inner.pods.iter().filter_map(|(uid, entry)| match &entry.status {
            Ok(status) => entry.may_run.then(|| (uid.clone(), status.key.clone())),
            Err(_) => Some((uid.clone(), PodKey::new("", ""))),
        });
        let unread = inner.unread().map(|uid| (uid.clone(), PodKey::new("", "")));
        running.chain(unread).collect()
    }

    /// Counts changes of the result of [`running_pods`](Self::running_pods).
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Increases with each status that is stored or removed.
    pub(crate) fn version(&self) -> u64 {
        self.inner.lock().version
    }

    /// Waits until the pod's status is newer than `time`, and returns it (`GetNewerThan`). A failed read of the status
    /// counts as news: the waiter gets the error.
    ///
    /// There is no time limit; use a timeout around it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn get_newer_than(&self, uid: &PodUid, time: Instant) -> Result<Arc<PodStatus>> {
        self.wait(uid, Some(time)).await
    }

    /// Waits until the pod was observed once. After the first list, that is true for all pods.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn get_observed(&self, uid: &PodUid) -> Result<Arc<PodStatus>> {
        self.wait(uid, None).await
    }

    /// Waits until all pods were observed once.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn listed(&self) {
        // Every pod has a UID, so only a complete list can satisfy this wait.
        let _ = self.get_observed(&PodUid::new("")).await;
    }

    /// Waits until all pods were observed once, and the status of each listed pod was read, or failed to be read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn listed_and_read(&self) {
        self.listed().await;
        let unread: Vec<PodUid> = self.inner.lock().unread().cloned().collect();
        for uid in unread {
            // Also returns if a later list does not have the pod.
            let _ = self.get_observed(&uid).await;
        }
    }

    /// Waits until a task starts to [wait](Self::get_newer_than) for a pod. Returns at once if one did since the last
    /// call. Only the PLEG calls this.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn somebody_waits(&self) {
        self.wait_began.notified().await;
    }

    /// The pods with a waiter. A PLEG that lists rarely inspects them in the meantime. Who waits for a
    /// [complete list](Self::listed) waits for no pod.
    pub fn awaited(&self) -> Vec<PodUid> {
        let inner = self.inner.lock();
        let awaited = inner.waiters.iter().filter(|(uid, waiters)| {
            !uid.as_str().is_empty() && waiters.iter().any(|waiter| !waiter.wake.is_closed())
        });
        awaited.map(|(uid, _)| uid.clone()).collect()
    }

    async fn wait(&self, uid: &PodUid, time: Option<Instant>) -> Result<Arc<PodStatus>> {
        let woken = {
            let mut inner = self.inner.lock();
            if let Some(status) = inner.newer_than(uid, time, None) {
                return status;
            }
            let (wake, woken) = oneshot::channel();
            let waiters = inner.waiters.entry(uid.clone()).or_default();
            // Waiters that gave up have left an unused entry.
            waiters.retain(|waiter| !waiter.wake.is_closed());
            waiters.push(Waiter {
                newer_than: time,
                wake,
            });
            woken
        };
        self.wait_began.notify_one();
        match woken.await {
            Ok(status) => status,
            // The sender is in the cache, which this handle keeps alive.
            Err(_) => self.get(uid),
        }
    }

    /// Stores the status of a pod as read at `observed`, a time taken before the runtime was asked. Wakes the waiters.
    /// Only the PLEG calls this.
    pub fn set(&self, uid: &PodUid, status: Result<Arc<PodStatus>>, observed: Instant) {
        let may_run = status.as_ref().map_or(true, |status| status.is_running());
        let entry = Entry {
            status: status.map_err(Box::new),
            observed,
            may_run,
        };
        let mut inner = self.inner.lock();
        inner.version += 1;
        let before = match inner.pods.get_mut(uid) {
            Some(before) => Some(std::mem::replace(before, entry)),
            None => inner.pods.insert(uid.clone(), entry),
        };
        let could_run = before.as_ref().map(|before| before.may_run);
        if could_run != Some(may_run) {
            self.changes.note();
        }
        inner.wake(uid, None);
    }

    /// Records that the stored state of a pod (also its absence) was still true at `time`, when the runtime was asked
    /// about this pod alone (`SetObservedTime`). Wakes the waiters. Only the PLEG calls this.
    pub fn set_observed_time(&self, uid: &PodUid, time: Instant) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.pods.get_mut(uid) {
            entry.observed = entry.observed.max(time);
        }
        inner.wake(uid, Some(time));
    }

    /// Removes a pod that the runtime no longer has. Only the PLEG calls this.
    pub fn delete(&self, uid: &PodUid) {
        let mut inner = self.inner.lock();
        if inner.pods.remove(uid).is_some() {
            inner.version += 1;
            self.changes.note();
        }
    }

    /// Records that every entry is at least as new as `time`, and wakes the waiters (`UpdateTime`). Only the PLEG calls
    /// this, after it has set each pod of a list.
    pub fn update_time(&self, time: Instant) {
        self.update_time_except(time, []);
    }

    /// Like [`update_time`](Self::update_time), except for the pods in `lag`, whose status is still being read. They
    /// keep their time until they are [`set`](Self::set) or a later call does not list them. So a pod that cannot be
    /// read blocks only its own waiters.
    pub fn update_time_except(&self, time: Instant, lag: impl IntoIterator<Item = PodUid>) {
        let mut inner = self.inner.lock();
        let lagging = lag
            .into_iter()
            .map(|uid| {
                let before = inner.all_at(&uid);
                (uid, before)
            })
            .collect();
        let were_unread: HashSet<PodUid> = inner.unread().cloned().collect();
        inner.lagging = lagging;
        inner.observed_all_at = Some(time);
        if inner.unread().count() != were_unread.len() || inner.unread().any(|uid| !were_unread.contains(uid))
        {
            self.changes.note();
        }
        let waiting: Vec<PodUid> = inner.waiters.keys().cloned().collect();
        for uid in waiting {
            inner.wake(&uid, None);
        }
    }
}

impl Entry {
    fn status(&self) -> Result<Arc<PodStatus>> {
        self.status.clone().map_err(|error| *error)
    }
}

impl Inner {
    /// The time that complete lists give to this pod's entry.
    fn all_at(&self, uid: &PodUid) -> Option<Instant> {
        if self.lagging.is_empty() {
            return self.observed_all_at;
        }
        self.lagging.get(uid).copied().unwrap_or(self.observed_all_at)
    }

    /// The pods that the runtime has listed, and whose status was not read yet.
    fn unread(&self) -> impl Iterator<Item = &PodUid> {
        self.lagging.keys().filter(|uid| !self.pods.contains_key(*uid))
    }

    /// The status, if it is newer than `time`, or if any is known and `time` is `None`. `absent_at`: when the pod was
    /// looked for alone, in case it has no entry.
    fn newer_than(
        &self,
        uid: &PodUid,
        time: Option<Instant>,
        absent_at: Option<Instant>,
    ) -> Option<Result<Arc<PodStatus>>> {
        let all = self.all_at(uid);
        match self.pods.get(uid) {
            Some(entry) => (Some(entry.observed).max(all) > time).then(|| entry.status()),
            None => {
                let observed = all.max(absent_at)?;
                (Some(observed) > time).then(|| Ok(empty_status(uid, observed)))
            }
        }
    }

    fn wake(&mut self, uid: &PodUid, absent_at: Option<Instant>) {
        if self.waiters.is_empty() {
            return;
        }
        let Some(waiters) = self.waiters.remove(uid) else {
            return;
        };
        let mut still_waiting = Vec::new();
        for waiter in waiters {
            match self.newer_than(uid, waiter.newer_than, absent_at) {
                // A waiter that gave up needs no answer.
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
    async fn a_pod_that_lags_holds_up_its_own_waiters_alone() {
        let (cache, slow, other) = (PodCache::new(), PodUid::from("slow"), PodUid::from("other"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        cache.update_time(at(1));
        let mut slow_wait = Box::pin(cache.get_newer_than(&slow, at(1)));
        let mut other_wait = Box::pin(cache.get_newer_than(&other, at(1)));
        assert!(slow_wait.as_mut().now_or_never().is_none());
        assert!(other_wait.as_mut().now_or_never().is_none());
        for time in 2..5 {
            cache.update_time_except(at(time), [slow.clone()]);
            assert_eq!(
                cache.observed_at(&slow),
                Some(at(1)),
                "as new as it was, and no older"
            );
        }
        assert!(other_wait.now_or_never().is_some());
        assert!(slow_wait.as_mut().now_or_never().is_none());
        cache.set(&slow, status(&slow, at(3)), at(3));
        assert_eq!(slow_wait.now_or_never().unwrap().unwrap().timestamp, at(3));
        cache.update_time(at(5));
        assert_eq!(cache.observed_at(&slow), Some(at(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_list_is_read_once_each_of_its_pods_was() {
        let (cache, start) = (PodCache::new(), Instant::now());
        let [read, gone] = ["read", "gone"].map(PodUid::from);
        let mut wait = Box::pin(cache.listed_and_read());
        assert!(wait.as_mut().now_or_never().is_none(), "nothing was listed");
        assert!(cache.awaited().is_empty(), "it waits for no single pod");
        cache.update_time_except(start, [read.clone(), gone.clone()]);
        assert!(wait.as_mut().now_or_never().is_none(), "listed, not read");
        cache.set(&read, status(&read, start), start);
        assert!(wait.as_mut().now_or_never().is_none(), "one is left");
        cache.update_time(start + Duration::from_secs(1));
        assert!(wait.now_or_never().is_some(), "the other is not there any more");
        assert!(cache.listed_and_read().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_pod_may_be_confirmed_alone() {
        let (cache, uid, other) = (PodCache::new(), PodUid::from("a"), PodUid::from("b"));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        cache.set(&uid, status(&uid, at(1)), at(1));
        let mut wait = Box::pin(cache.get_newer_than(&uid, at(1)));
        let mut absent = Box::pin(cache.get_newer_than(&other, at(1)));
        assert!(wait.as_mut().now_or_never().is_none() && absent.as_mut().now_or_never().is_none());
        cache.set_observed_time(&uid, at(2));
        assert_eq!(
            wait.now_or_never().unwrap().unwrap().timestamp,
            at(1),
            "what was read then still holds"
        );
        assert!(absent.as_mut().now_or_never().is_none());
        cache.set_observed_time(&other, at(2));
        assert!(absent.now_or_never().unwrap().unwrap().sandboxes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_listed_may_run_until_its_status_is_read() {
        let (cache, uid, start) = (PodCache::new(), PodUid::from("a"), Instant::now());
        let running = || cache.running_pods().into_iter().map(|(uid, _)| uid);
        let changed = cache.changes().clone();
        let mut seen = changed.count();
        let mut is_noted = || std::mem::replace(&mut seen, changed.count()) != changed.count();
        cache.update_time_except(start, [uid.clone()]);
        assert!(running().eq([uid.clone()]) && is_noted());
        cache.update_time_except(start, [uid.clone()]);
        assert!(running().eq([uid.clone()]) && !is_noted());
        cache.set(&uid, status(&uid, start), start);
        assert!(running().eq([]) && is_noted(), "nothing of it runs");
        cache.set(&uid, Err(Error::Cancelled), start);
        assert!(running().eq([uid.clone()]) && is_noted(), "only once");
        cache.delete(&uid);
        cache.update_time(start);
        assert!(running().eq([]) && is_noted());
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_wakes_and_those_who_gave_up_leave_nothing() {
        let (cache, uid) = (PodCache::new(), PodUid::from("a"));
        let start = Instant::now();
        for _ in 0..100 {
            assert!(cache.get_newer_than(&uid, start).now_or_never().is_none());
        }
        assert!(cache.inner.lock().waiters[&uid].len() <= 1);
        assert!(cache.awaited().is_empty());
        let mut wait = Box::pin(cache.get_newer_than(&uid, start));
        assert!(wait.as_mut().now_or_never().is_none());
        assert_eq!(cache.awaited(), std::slice::from_ref(&uid));
        cache.set(&uid, Err(Error::Cancelled), start + Duration::from_secs(1));
        assert!(wait.now_or_never().unwrap().is_err());
        assert!(cache.inner.lock().waiters.is_empty());
    }
}
