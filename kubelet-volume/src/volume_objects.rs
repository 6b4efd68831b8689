//! The objects of an API server that persistent volumes need.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use tokio::sync::watch;

use crate::Result;

/// Reads claims and persistent volumes, and writes what the node has to say of them. With the feature `apiserver`,
/// [`ApiServerVolumeObjects`](crate::ApiServerVolumeObjects) reads them from an API server.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait VolumeObjects: Send + Sync {
    /// The claim, read from the API server itself and not from a cache.
    async fn claim(&self, namespace: &str, name: &str) -> Result<Option<Arc<PersistentVolumeClaim>>>;

    /// The persistent volume.
    async fn volume(&self, name: &str) -> Result<Option<Arc<PersistentVolume>>>;

    /// Patches the status of a claim, with a merge patch of its `status`: after the node has grown its volume.
    async fn patch_claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        status: serde_json::Value,
    ) -> Result<Arc<PersistentVolumeClaim>>;

    /// The unique names and device paths of the volumes that the controller has attached to this node
    /// (`status.volumesAttached` of the node), read from the API server.
    async fn attached(&self) -> Result<Vec<(String, String)>>;

    /// Changes whenever [`attached`](Self::attached) may differ. `None`, the default: changes are not observed, and the
    /// manager reads the list again after a back-off.
    fn attached_changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// No claims and persistent volumes: for an agent without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVolumeObjects;

#[async_trait]
impl VolumeObjects for NoVolumeObjects {
    async fn claim(&self, _: &str, _: &str) -> Result<Option<Arc<PersistentVolumeClaim>>> {
        Ok(None)
    }

    async fn volume(&self, _: &str) -> Result<Option<Arc<PersistentVolume>>> {
        Ok(None)
    }

    async fn patch_claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        _: serde_json::Value,
    ) -> Result<Arc<PersistentVolumeClaim>> {
        Ok(Arc::new(claim.clone()))
    }

    async fn attached(&self) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }
}
