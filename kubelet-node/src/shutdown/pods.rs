//! The pods of a node that shuts down.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{EventRecorder, KubeletHandle, PodExt, PodStatusFn};
use tokio::time::sleep;

use crate::error::BoxError;

/// How often the workers are asked whether a pod has released its volumes.
const POLL: Duration = Duration::from_millis(100);

/// The pods of the node, and how they end. [`KubeletPods`] is that of a [`Kubelet`](kubelet_core::Kubelet).
///
/// # Cancel safety
///
/// When a call is dropped, the pod continues to end.
#[async_trait]
pub trait ShutdownPods: Send + Sync {
    /// The pods that have not ended (`GetPodsFunc`).
    fn active_pods(&self) -> Vec<Arc<Pod>>;

    /// Ends the pod, and returns when its containers have ended (`KillPodFunc`).
    ///
    /// # Errors
    ///
    /// If they have not ended in time.
    async fn kill(
        &self,
        pod: &Arc<Pod>,
        grace_period: Duration,
        status_fn: PodStatusFn,
    ) -> Result<(), BoxError>;

    /// Waits until the volumes of the pod are unmounted (`WaitForAllPodsUnmount`).
    async fn wait_for_unmount(&self, pod: &Arc<Pod>);
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
impl ShutdownPods for KubeletPods {
    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.active_pods()
    }

    async fn kill(
        &self,
        pod: &Arc<Pod>,
        grace_period: Duration,
        status_fn: PodStatusFn,
    ) -> Result<(), BoxError> {
        let workers = self.kubelet.workers();
        let killed = workers.kill_pod_now(pod, false, Some(grace_period), Some(status_fn), &*self.recorder);
        Ok(killed.await?)
    }

    /// A pod is finished after its volumes are unmounted.
    async fn wait_for_unmount(&self, pod: &Arc<Pod>) {
        while !self.kubelet.workers().should_pod_be_finished(&pod.uid()) {
            sleep(POLL).await;
        }
    }
}

kubelet_core::impl_debug!(KubeletPods);
