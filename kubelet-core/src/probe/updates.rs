//! Which pods are to be synced because of their probes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::Notify;

use crate::PodUid;

/// The pods of which some result changed: a set, so that it can be neither full nor out of date.
pub struct ProbeUpdates(pub(super) Arc<DirtyPods>);

impl ProbeUpdates {
    /// Waits for a pod that is to be synced because of its probes, in the order in which they changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&mut self) -> PodUid {
        loop {
            if let Some(uid) = self.0.pods.lock().pop() {
                return uid;
            }
            self.0.changed.notified().await;
        }
    }
}

impl fmt::Debug for ProbeUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeUpdates").finish_non_exhaustive()
    }
}

/// The writing end.
#[derive(Default)]
pub(super) struct DirtyPods {
    pods: Mutex<Dirty>,
    changed: Notify,
}

impl DirtyPods {
    pub(super) fn push(&self, uid: PodUid) {
        self.pods.lock().push(uid);
        self.changed.notify_one();
    }
}

#[derive(Default)]
struct Dirty {
    order: VecDeque<PodUid>,
    known: FxHashSet<PodUid>,
}

impl Dirty {
    fn push(&mut self, uid: PodUid) {
        if self.known.insert(uid.clone()) {
            self.order.push_back(uid);
        }
    }

    fn pop(&mut self) -> Option<PodUid> {
        let uid = self.order.pop_front()?;
        self.known.remove(&uid);
        Some(uid)
    }
}
