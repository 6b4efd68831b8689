//! A set of pods that somebody is to look at, in the order in which they came into it.

use std::collections::VecDeque;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::Notify;

use crate::PodUid;

/// A pod stands in it once, however often it is pushed: it can be neither full nor out of date.
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

    /// Takes the next one; for one taker at a time.
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
