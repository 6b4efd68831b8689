//! What the manager needs of the rest of the node.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{KubeletHandle, PodUid};

use crate::BoxError;
use crate::cpu_set::CpuSet;

/// The pods of the node. [`KubeletPods`] is that of a [`Kubelet`](kubelet_core::Kubelet).
pub trait NodePods: Send + Sync {
    /// Whether all sources have reported their pods (`SourcesReady`). Until then nothing is freed.
    fn sources_ready(&self) -> bool;

    /// The pods that have not ended (`ActivePodsFunc`).
    fn active_pods(&self) -> Vec<Arc<Pod>>;

    /// The pod's status for the API, with the ids and states of its containers (`PodStatusProvider`).
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>>;
}

/// Changes the resources of running containers (`UpdateContainerResources` of the CRI).
#[async_trait]
pub trait ContainerUpdates: Send + Sync {
    /// Lets the container run on these CPUs only. `container_id` is that of the runtime, without the `containerd://` before it.
    ///
    /// # Errors
    ///
    /// If the runtime does not do it. The call is repeated in the next round.
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, the runtime may or may not have done it. It is repeated after the next start.
    async fn update_cpus(&self, container_id: &str, cpus: &CpuSet) -> Result<(), BoxError>;
}

/// The pods of a [`Kubelet`](kubelet_core::Kubelet).
#[derive(Clone)]
pub struct KubeletPods {
    kubelet: KubeletHandle,
}

impl KubeletPods {
    /// The pods of this agent.
    pub fn new(kubelet: KubeletHandle) -> Self {
        Self { kubelet }
    }
}

impl NodePods for KubeletPods {
    fn sources_ready(&self) -> bool {
        self.kubelet.sources().all_ready()
    }

    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.active_pods()
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.kubelet.pod_status(uid)
    }
}
