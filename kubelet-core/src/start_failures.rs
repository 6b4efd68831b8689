//! Why containers did not start, by pod and container.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::PodUid;
use crate::explain::count_deferral;
use crate::runtime::{PodSyncResult, SyncAction, SyncFailure};

/// The last failed start of each container: its status shows this while it waits. The kubelet's `ReasonCache`, without
/// its size limit: entries are removed with their pod. A cheap handle.
#[derive(Clone, Debug, Default)]
pub struct StartFailures {
    pods: Arc<Mutex<HashMap<PodUid, OfPod>>>,
}

pub(crate) type OfPod = Arc<BTreeMap<String, SyncFailure>>;

impl StartFailures {
    /// No failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the result of a sync: a failed start is stored, a successful one removes the entry. Returns whether a
    /// container fails for a new reason.
    pub fn update(&self, uid: &PodUid, result: &PodSyncResult) -> bool {
        let mut pods = self.pods.lock();
        let mut news = false;
        for result in &result.results {
            if !matches!(
                result.action,
                SyncAction::StartContainer | SyncAction::InitContainer
            ) {
                continue;
            }
            let of_pod = Arc::make_mut(pods.entry(uid.clone()).or_default());
            match &result.failure {
                Some(failure) => {
                    let before = of_pod.insert(result.target.clone(), failure.clone());
                    let waited_until = before.as_ref().and_then(|before| before.back_off_until);
                    if failure.back_off_until.is_some() && failure.back_off_until != waited_until {
                        count_deferral("back-off");
                    }
                    news |= before.is_none_or(|before| before.reason != failure.reason);
                }
                None => drop(of_pod.remove(&result.target)),
            }
        }
        if pods.get(uid).is_some_and(|of_pod| of_pod.is_empty()) {
            pods.remove(uid);
        }
        news
    }

    /// The failed starts of a pod, by container.
    pub fn of_pod(&self, uid: &PodUid) -> Option<Arc<BTreeMap<String, SyncFailure>>> {
        self.pods.lock().get(uid).cloned()
    }

    /// Restores entries of the previous run of the agent; newer entries stay.
    pub(crate) fn restore(&self, uid: &PodUid, noted: OfPod) {
        self.pods.lock().entry(uid.clone()).or_insert(noted);
    }

    /// Removes all other pods.
    pub fn retain(&self, known: &HashSet<PodUid>) {
        self.pods.lock().retain(|uid, _| known.contains(uid));
    }
}
