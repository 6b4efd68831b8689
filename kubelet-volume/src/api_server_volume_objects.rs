//! Claims and persistent volumes of an API server.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube_client::api::{Api, Patch, PatchParams};
use kube_client::{Client, Error as ClientError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::{Error, Result, VolumeObjects};

/// How long an answer is waited for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Reads claims, persistent volumes and the attached volumes of a node from an API server. Each call sends one request, as
/// the kubelet's do.
#[derive(Clone)]
pub struct ApiServerVolumeObjects {
    client: Client,
    node_name: Arc<str>,
    attached_changes: Option<watch::Receiver<u64>>,
}

impl ApiServerVolumeObjects {
    /// The objects of the API server of `client`, for the node `node_name`.
    pub fn new(client: Client, node_name: impl AsRef<str>) -> Self {
        Self {
            client,
            node_name: Arc::from(node_name.as_ref()),
            attached_changes: None,
        }
    }

    /// Changes whenever the node's `status.volumesAttached` may have changed, e.g. from the watch of the node. By default,
    /// changes are not observed.
    #[must_use]
    pub fn attached_changes(mut self, changes: watch::Receiver<u64>) -> Self {
        self.attached_changes = Some(changes);
        self
    }
}

/// The result of a request, with the message of the API server as the error.
pub(crate) async fn within<T>(request: impl Future<Output = Result<T, ClientError>>) -> Result<T> {
    match timeout(DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(ClientError::Api(status))) => Err(Error::failed(status.message.clone())),
        Ok(Err(error)) => Err(Error::failed(error.to_string())),
        Err(_) => Err(Error::failed(format!(
            "no answer from the API server after {DEADLINE:?}"
        ))),
    }
}

#[async_trait]
impl VolumeObjects for ApiServerVolumeObjects {
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Arc<PersistentVolumeClaim>>> {
        let claims = Api::namespaced(self.client.clone(), namespace);
        Ok(within(claims.get_opt(name)).await?.map(Arc::new))
    }

    async fn volume(&self, name: &str) -> Result<Option<Arc<PersistentVolume>>> {
        let volumes = Api::all(self.client.clone());
        Ok(within(volumes.get_opt(name)).await?.map(Arc::new))
    }

    async fn patch_claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        status: Value,
    ) -> Result<Arc<PersistentVolumeClaim>> {
        let metadata = &claim.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
        // The UID: it must be the same claim still.
        let patch = Patch::Merge(json!({"metadata": {"uid": metadata.uid}, "status": status}));
        let (name, params) = (
            metadata.name.as_deref().unwrap_or_default(),
            PatchParams::default(),
        );
        within(claims.patch_status(name, &params, &patch))
            .await
            .map(Arc::new)
    }

    async fn attached(&self) -> Result<Vec<(String, String)>> {
        let nodes = Api::<Node>::all(self.client.clone());
        let node = within(nodes.get(&self.node_name)).await?;
        let attached = node.status.and_then(|status| status.volumes_attached);
        let volumes = attached.unwrap_or_default().into_iter();
        Ok(volumes.map(|volume| (volume.name, volume.device_path)).collect())
    }

    fn attached_changes(&self) -> Option<watch::Receiver<u64>> {
        self.attached_changes.clone()
    }
}

impl Debug for ApiServerVolumeObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServerVolumeObjects")
            .field("node", &self.node_name)
            .finish_non_exhaustive()
    }
}
