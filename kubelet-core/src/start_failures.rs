//! Why containers did not start, by pod and container.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::PodUid;
use crate::explain::count_deferral;
use crate::runtime::{PodSyncResult, SyncAction, SyncFailure};

/// How the last start of each container failed: what its status shows while it waits. The kubelet's
/// `ReasonCache`, without its bound: a pod's entries go with the pod. A cheap handle.
#[derive(Clone, Debug, Default)]
pub struct StartFailures {
    pods: Arc<Mutex<HashMap<PodUid, OfPod>>>,
}

pub(crate) type OfPod = Arc<BTreeMap<String, SyncFailure>>;

impl StartFailures {
    /// No start has failed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what came of a sync: a failed start is noted, a successful one wipes the note. Whether a
    /// start fails now for another reason than before.
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

    /// An agent before this one noted these; what was noted since stays.
    pub(crate) fn restore(&self, uid: &PodUid, noted: OfPod) {
        self.pods.lock().entry(uid.clone()).or_insert(noted);
    }

    /// Forgets all other pods.
    pub fn retain(&self, known: &HashSet<PodUid>) {
        self.pods.lock().retain(|uid, _| known.contains(uid));
    }
}
