//! What a pod needs of dynamic resource allocation.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::PodUid;

/// Prepares the resource claims of pods (the DRA manager of the kubelet's container manager).
///
/// The runtime calls [`prepare`](Self::prepare) before it creates a sandbox and [`cdi_devices`](Self::cdi_devices) for each container
/// that it creates. The pod syncer calls [`unprepare`](Self::unprepare) when all containers of a pod have stopped, before it reports
/// that the pod has ended.
#[async_trait]
pub trait DynamicResources: Send + Sync {
    /// Prepares all claims of the pod. Does nothing for those that are prepared (`PrepareDynamicResources`).
    ///
    /// # Errors
    ///
    /// The text for the event `FailedPrepareDynamicResources`. The pod gets no sandbox, and the next sync tries again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped. What was prepared until then is unprepared with the pod.
    async fn prepare(&self, pod: &Pod) -> Result<(), DynamicResourcesError>;

    /// Unprepares the claims that no other pod uses (`UnprepareDynamicResources`). Repeatable.
    ///
    /// # Errors
    ///
    /// If a claim may still be prepared. The pod then has not ended yet, and the next sync tries again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; the next call does the rest.
    async fn unprepare(&self, pod: &Pod) -> Result<(), DynamicResourcesError>;

    /// Whether a claim of the pod may still be prepared (`PodMightNeedToUnprepareResources`). Such a pod is not deleted from the API.
    fn might_need_unprepare(&self, uid: &PodUid) -> bool;

    /// The ids of the CDI devices of a container, in a fixed order.
    ///
    /// # Errors
    ///
    /// If a claim of the container is not known. The container is then not created.
    fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, DynamicResourcesError>;
}

/// Why the claims of a pod cannot be prepared, used or unprepared: the kubelet's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DynamicResourcesError(pub String);
