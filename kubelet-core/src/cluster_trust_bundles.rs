//! The trust anchors of the cluster, for projected volumes.

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tokio::sync::watch;

use crate::{Error, Result};

/// Reads trust anchors of `ClusterTrustBundle` objects (the kubelet's `clustertrustbundle.Manager`). The result is a
/// sequence of PEM certificates, each once, in an order that stays the same while the objects do.
#[async_trait]
pub trait ClusterTrustBundles: Send + Sync {
    /// The anchors of the bundle of this name (`GetTrustAnchorsByName`). If there is none: empty with `allow_missing`,
    /// else an error.
    async fn by_name(&self, name: &str, allow_missing: bool) -> Result<Vec<u8>>;

    /// The anchors of all bundles of the signer that the selector matches (`GetTrustAnchorsBySigner`). `None` matches
    /// none, an empty selector all.
    async fn by_signer(
        &self,
        signer: &str,
        selector: Option<&LabelSelector>,
        allow_missing: bool,
    ) -> Result<Vec<u8>>;

    /// Changes whenever a bundle was created, changed or deleted. `None`, the default: changes are not observed.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// No trust bundles: for an agent without an API server, or with the feature gate off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoClusterTrustBundles;

#[async_trait]
impl ClusterTrustBundles for NoClusterTrustBundles {
    async fn by_name(&self, _: &str, _: bool) -> Result<Vec<u8>> {
        Err(disabled())
    }

    async fn by_signer(&self, _: &str, _: Option<&LabelSelector>, _: bool) -> Result<Vec<u8>> {
        Err(disabled())
    }
}

/// (`clustertrustbundle.NoopManager`)
fn disabled() -> Error {
    let message = "ClusterTrustBundle projection is not supported in static kubelet mode".to_owned();
    Error::Certificates { message }
}
