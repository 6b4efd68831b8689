//! A set of pods that need attention, in order of arrival.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::Notify;

use crate::PodUid;

/// Holds each pod once, however often it is pushed. So it can neither overflow nor go stale.
#[derive(Debug, Default)]
pub(crate) struct DirtyPods {
    pods: Mutex<Pods>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pods {
    order: VecDeque<PodUid>,
    known: FxHashSet<PodUid>,
}

impl DirtyPods {
    pub(crate) fn push(&self, uid: PodUid) {
        {
            let mut pods = self.pods.lock();
            if pods.known.insert(uid.clone()) {
                pods.order.push_back(uid);
            }
        }
        self.changed.notify_one();
    }

    /// Takes the next pod. Supports one taker at a time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub(crate) async fn next(&self) -> PodUid {
        loop {
            if let Some(uid) = self.pop() {
                return uid;
            }
            self.changed.notified().await;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.lock().order.len()
    }

    fn pop(&self) -> Option<PodUid> {
        let mut pods = self.pods.lock();
        let uid = pods.order.pop_front()?;
        pods.known.remove(&uid);
        Some(uid)
    }
}

/// The sets of all subscribers. One that its subscriber has dropped is removed.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    subscribers: Vec<Weak<DirtyPods>>,
}

impl Subscriptions {
    /// A new set, which begins with these pods.
    pub(crate) fn add<'a>(&mut self, pods: impl Iterator<Item = &'a PodUid>) -> Arc<DirtyPods> {
        let changed = Arc::new(DirtyPods::default());
        let mut uids: Vec<&PodUid> = pods.collect();
        // Sorted, so that each run has the same order.
        uids.sort_unstable();
        for uid in uids {
            changed.push(uid.clone());
        }
        self.subscribers.push(Arc::downgrade(&changed));
        changed
    }

    /// Adds the pod to each set.
    pub(crate) fn push(&mut self, uid: &PodUid) {
        self.subscribers.retain(|subscriber| {
            let subscriber = subscriber.upgrade();
            if let Some(changed) = &subscriber {
                changed.push(uid.clone());
            }
            subscriber.is_some()
        });
    }
}
