//! A sink in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{PodExt, PodUid, Result, StatusSink};
use tokio::sync::watch;

/// A pod and its last reported status.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReportedPod {
    /// The pod as it was when it was reported. Its `status` field is the source's.
    pub pod: Arc<Pod>,
    /// The reported status.
    pub status: Arc<ApiPodStatus>,
}

/// Keeps the latest status of each pod in memory, for tests and live displays. Pods that are deleted or gone from their
/// source are removed. Clones share the store.
#[derive(Clone, Debug)]
pub struct MemorySink {
    pods: Arc<watch::Sender<BTreeMap<PodUid, ReportedPod>>>,
}

impl Default for MemorySink {
    fn default() -> Self {
        Self::new()
    }
}

impl MemorySink {
    /// An empty sink.
    pub fn new() -> Self {
        Self {
            pods: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }

    /// The latest status of a pod.
    pub fn get(&self, uid: &PodUid) -> Option<Arc<ApiPodStatus>> {
        Some(self.pods.borrow().get(uid)?.status.clone())
    }

    /// All pods.
    pub fn all(&self) -> Vec<ReportedPod> {
        self.pods.borrow().values().cloned().collect()
    }

    /// A watch of all statuses: `changed()` for a display, `wait_for(|pods| …)` for a test. It shows the latest state
    /// and may skip states in between. Statuses are delayed while its `borrow()` is held.
    pub fn watch(&self) -> watch::Receiver<BTreeMap<PodUid, ReportedPod>> {
        self.pods.subscribe()
    }

    fn remove(&self, pod: &Pod) {
        self.pods
            .send_if_modified(|pods| pods.remove(pod.uid_str()).is_some());
    }
}

#[async_trait]
impl StatusSink for MemorySink {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        _: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        let reported = ReportedPod {
            pod: pod.clone(),
            status: Arc::new(new.clone()),
        };
        self.pods.send_modify(|pods| {
            pods.insert(pod.uid(), reported);
        });
        Ok(None)
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        self.remove(pod);
        Ok(())
    }

    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        self.remove(pod);
        Ok(())
    }
}
