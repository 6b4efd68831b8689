//! The health of the devices that containers have.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};

use crate::PodUid;
use crate::dirty_pods::DirtyPods;

/// Knows how the devices of containers are: the device manager and the DRA manager of the kubelet's container manager.
///
/// The pod syncer asks it for each status that it generates. When an answer changes, report the pod through
/// [`ResourceUpdates`].
pub trait ResourceHealth: Send + Sync {
    /// Sets `allocatedResourcesStatus` of the containers in the status, beside what others have set there
    /// (`UpdateAllocatedResourcesStatus`). Must return at once.
    fn update_allocated_resources_status(&self, pod: &Pod, status: &mut ApiPodStatus);
}

/// The pods to sync because the health of a device changed: a set, so it can neither overflow nor go stale. Clones share it. Answers to
/// the channel `Updates` of the kubelet's container manager.
#[derive(Clone, Default)]
pub struct ResourceUpdates(Arc<DirtyPods>);

impl ResourceUpdates {
    /// No pods.
    pub fn new() -> Self {
        Self::default()
    }

    /// The status of the pod is to be generated again. A pod that is not known is ignored later.
    pub fn push(&self, uid: PodUid) {
        self.0.push(uid);
    }

    /// Waits for a pod to sync. Pods come in the order of their changes. Supports one caller at a time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&self) -> PodUid {
        self.0.next().await
    }
}

crate::impl_debug!(ResourceUpdates);
