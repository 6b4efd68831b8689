//! The sink that the kubelet has: the API server.

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

/// Sends statuses to an API server: a strategic merge patch of the pod's `status` sub-resource that holds what
/// changed and, as its precondition, the pod's UID (`statusutil.PatchPodStatus`); and the last delete, with grace
/// period 0 and the UID as its precondition.
///
/// No request of this sink retries by itself: the [`StatusManager`](crate::StatusManager) tries again, with a status
/// that may be newer by then.
#[derive(Clone)]
pub struct ApiServerSink {
    client: Client,
}

impl ApiServerSink {
    /// A sink to the API server that `client` talks to.
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

/// What is kept of an answer: `managedFields` take more memory than all the rest, and nobody reads them.
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
            // A node may read its own pods: of one that is gone it is told no more than that.
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
            // Gone, or another's name by now: this one is deleted either way.
            Err(ClientError::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(failed(pod, error)),
        }
    }
}

/// What the node authorizer says of a pod that is not the node's, and of one that is not there (`AuthorizeNodeWithSelectors`).
const UNRELATED: &str = "no relationship found between node";

fn failed(pod: &Pod, error: ClientError) -> Error {
    let (pod, uid) = (pod.key(), pod.uid());
    let retry_after = match &error {
        ClientError::Api(status) => status
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds),
        _ => 0,
    };
    let source = Arc::new(error);
    match retry_after {
        0 => Error::StatusSink { pod, uid, source },
        seconds => Error::StatusSinkBusy {
            pod,
            uid,
            retry_after: Duration::from_secs(seconds.into()),
            source,
        },
    }
}
