//! What the manager reads of an API server, and deletes there.

use async_trait::async_trait;
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::BoxError;

/// The objects of `resource.k8s.io` that a node needs. [`ApiServerClaims`](super::ApiServerClaims) is those of an API server.
#[async_trait]
pub trait ClaimObjects: Send + Sync {
    /// Reads a claim. The manager reads each claim of a pod once before it prepares it.
    ///
    /// # Errors
    ///
    /// If it cannot be read or does not exist. The text appears in an event: the one of the API server is best.
    ///
    /// # Cancel safety
    ///
    /// May be dropped.
    async fn claim(&self, namespace: &str, name: &str) -> Result<ResourceClaim, BoxError>;

    /// Deletes the `ResourceSlice`s of this node: those of one driver, or of all drivers. It is no error if there are none.
    ///
    /// # Errors
    ///
    /// If some may still be there. The call is repeated after a back-off.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, if the driver is back. Some slices may then be deleted; the driver publishes them again.
    async fn delete_slices(&self, driver: Option<&str>) -> Result<(), BoxError>;
}
