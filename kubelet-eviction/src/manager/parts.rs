//! What the manager needs from other parts of an agent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{EventRecorder, KubeletHandle, PodExt, PodStatusFn};

use crate::config::FileSystems;
use crate::error::BoxError;

/// Knows which file systems the node has (`DiskInfoProvider`).
///
/// # Cancel safety
///
/// The call may be dropped at any time.
#[async_trait]
pub trait FileSystemInfo: Send + Sync {
    /// Which file systems the node has. Called until it first succeeds.
    ///
    /// # Errors
    ///
    /// If it is not known yet.
    async fn file_systems(&self) -> Result<FileSystems, BoxError>;
}

/// Fixed file systems, e.g. for tests.
#[async_trait]
impl FileSystemInfo for FileSystems {
    async fn file_systems(&self) -> Result<FileSystems, BoxError> {
        Ok(*self)
    }
}

/// Deletes images (`eviction.ImageGC`).
///
/// # Cancel safety
///
/// The call may be dropped when the agent stops.
#[async_trait]
pub trait ImageGc: Send + Sync {
    /// Deletes all images that no container uses (`DeleteUnusedImages`).
    ///
    /// # Errors
    ///
    /// If images cannot be listed or deleted. The manager logs the error and continues.
    async fn delete_unused_images(&self) -> Result<(), BoxError>;
}

/// Deletes containers (`eviction.ContainerGC`).
///
/// # Cancel safety
///
/// The call may be dropped when the agent stops.
#[async_trait]
pub trait ContainerGc: Send + Sync {
    /// Deletes all containers that have ended, those of pods that are not deleted included (`DeleteAllUnusedContainers`).
    ///
    /// # Errors
    ///
    /// If containers cannot be listed or deleted. The manager logs the error and continues.
    async fn delete_all_unused_containers(&self) -> Result<(), BoxError>;
}

/// The pods of the node. [`KubeletPods`] is that of a [`Kubelet`](kubelet_core::Kubelet).
#[async_trait]
pub trait NodePods: Send + Sync {
    /// The pods that have not ended, with their allocated resources (`ActivePodsFunc`).
    fn active_pods(&self) -> Vec<Arc<Pod>>;

    /// Evicts the pod, and returns when its containers have ended (`KillPodFunc`).
    ///
    /// # Errors
    ///
    /// If they have not ended in time. The pod continues to end.
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, the pod continues to end.
    async fn evict(
        &self,
        pod: &Arc<Pod>,
        grace_period: Duration,
        status_fn: PodStatusFn,
    ) -> Result<(), BoxError>;

    /// Whether the resources of the pod are released (`PodCleanedUpFunc`).
    fn is_cleaned_up(&self, pod: &Pod) -> bool;
}

/// The pods of a [`Kubelet`](kubelet_core::Kubelet).
pub struct KubeletPods {
    kubelet: KubeletHandle,
    recorder: Arc<dyn EventRecorder>,
}

impl KubeletPods {
    /// The pods of this agent. An event is recorded about a pod that does not end in time.
    pub fn new(kubelet: KubeletHandle, recorder: Arc<dyn EventRecorder>) -> Self {
        Self { kubelet, recorder }
    }
}

#[async_trait]
impl NodePods for KubeletPods {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.active_pods()
    }

    async fn evict(
        &self,
        pod: &Arc<Pod>,
        grace_period: Duration,
        status_fn: PodStatusFn,
    ) -> Result<(), BoxError> {
        let workers = self.kubelet.workers();
        let killed = workers.kill_pod_now(pod, true, Some(grace_period), Some(status_fn), &*self.recorder);
        Ok(killed.await?)
    }

    fn is_cleaned_up(&self, pod: &Pod) -> bool {
        self.kubelet.workers().should_pod_be_finished(&pod.uid())
    }
}

kubelet_core::impl_debug!(KubeletPods);
