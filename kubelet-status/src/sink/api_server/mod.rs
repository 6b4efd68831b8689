//! The kubelet's sink: the API server.

mod events;
mod mirror_client;
mod node;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube_client::{Client, Error as ClientError};
use kubelet_core::{Error, PodExt, Result, SinkPod, StatusSink, strategic_merge_patch};
use serde_json::json;

pub use self::events::ApiServerEvents;
pub use self::mirror_client::ApiServerMirrorClient;
pub use self::node::ApiServerNode;

/// Sends statuses to an API server. A change is a strategic merge patch of the pod's `status` subresource, with the UID
/// as its precondition (`statusutil.PatchPodStatus`). The final delete has grace period 0 and the UID as its
/// precondition.
///
/// This sink does not retry requests. The [`StatusManager`](crate::StatusManager) does, with the latest status.
#[derive(Clone)]
pub struct ApiServerSink {
    client: Client,
}

impl ApiServerSink {
    /// A sink for the API server of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn pods(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.key().namespace)
    }
}

impl std::fmt::Debug for ApiServerSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServerSink").finish_non_exhaustive()
    }
}

/// `managedFields` are dropped: they take more memory than the rest, and are not needed.
fn stored(mut pod: Pod) -> Arc<Pod> {
    pod.metadata.managed_fields = None;
    Arc::new(pod)
}

#[async_trait]
impl StatusSink for ApiServerSink {
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        match self.pods(pod).get_opt(&pod.key().name).await {
            Ok(Some(found)) => Ok(SinkPod::Stored(stored(found))),
            Ok(None) => Ok(SinkPod::Absent),
            // A node may read only its own pods. For a pod that is gone, it gets this error.
            Err(ClientError::Api(status)) if status.code == 403 && status.message.contains(UNRELATED) => {
                Ok(SinkPod::Absent)
            }
            Err(error) => Err(failed(pod, error)),
        }
    }

    fn shows_static_pods_by_mirrors(&self) -> bool {
        true
    }

    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        let json = |status| {
            serde_json::to_value(status).map_err(|error| failed(pod, ClientError::SerdeError(error)))
        };
        let changed = strategic_merge_patch(&json(old)?, &json(new)?);
        if changed == json!({}) {
            return Ok(Some(pod.clone()));
        }
        let patch = json!({"metadata": {"uid": pod.uid_str()}, "status": changed});
        let patched = self
            .pods(pod)
            .patch_status(&pod.key().name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .map_err(|error| failed(pod, error))?;
        Ok(Some(stored(patched)))
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        let now = DeleteParams::default()
            .grace_period(0)
            .preconditions(Preconditions {
                uid: Some(pod.uid_str().to_owned()),
                resource_version: None,
            });
        match self.pods(pod).delete(&pod.key().name, &now).await {
            Ok(_) => Ok(()),
            // It is gone, or another pod has its name: this pod is deleted in both cases.
            Err(ClientError::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(failed(pod, error)),
        }
    }
}

/// The message of the node authorizer for a pod of another node, and for one that does not exist
/// (`AuthorizeNodeWithSelectors`).
const UNRELATED: &str = "no relationship found between node";

/// The message for a patch whose UID is not that of the pod (`ValidateObjectMetaUpdate`).
const OTHER_UID: &str = "metadata.uid: Invalid value";

fn failed(pod: &Pod, error: ClientError) -> Error {
    let (pod, uid) = (pod.key(), pod.uid());
    let retry_after = match &error {
        ClientError::Api(status) => status
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds),
        _ => 0,
    };
    let is_gone = match &error {
        ClientError::Api(status) => match status.code {
            // The pod, or its namespace.
            404 => true,
            403 => status.message.contains(UNRELATED),
            422 => status.message.contains(OTHER_UID),
            _ => false,
        },
        _ => false,
    };
    let source = Arc::new(error);
    match retry_after {
        _ if is_gone => Error::StatusSinkPodGone { pod, uid, source },
        0 => Error::StatusSink { pod, uid, source },
        seconds => Error::StatusSinkBusy {
            pod,
            uid,
            retry_after: Duration::from_secs(seconds.into()),
            source,
        },
    }
}
