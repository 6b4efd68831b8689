//! The pods of the node, as the server asks for them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{KubeletHandle, PodExt as _, PodKey, PodManager};

/// The pods that should run on the node, and their statuses.
pub trait NodePods: Send + Sync {
    /// All pods, without mirrors (`GetPods`).
    fn pods(&self) -> Vec<Arc<Pod>>;

    /// The pod of this namespace and name (`GetPodByName`).
    fn pod(&self, key: &PodKey) -> Option<Arc<Pod>> {
        self.pods().into_iter().find(|pod| pod.key() == *key)
    }

    /// The status that was reported last. By default, none is known: the pod's own counts.
    fn status(&self, pod: &Pod) -> Option<Arc<PodStatus>> {
        let _ = pod;
        None
    }
}

impl NodePods for KubeletHandle {
    fn pods(&self) -> Vec<Arc<Pod>> {
        KubeletHandle::pods(self).pods()
    }

    fn pod(&self, key: &PodKey) -> Option<Arc<Pod>> {
        KubeletHandle::pods(self).pod_by_key(key)
    }

    fn status(&self, pod: &Pod) -> Option<Arc<PodStatus>> {
        self.pod_status(&pod.uid())
    }
}

impl NodePods for PodManager {
    fn pods(&self) -> Vec<Arc<Pod>> {
        PodManager::pods(self)
    }

    fn pod(&self, key: &PodKey) -> Option<Arc<Pod>> {
        self.pod_by_key(key)
    }
}

/// A fixed list, for tests and static nodes.
impl NodePods for Vec<Arc<Pod>> {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.clone()
    }
}
