//! Config maps and secrets, read by the strategy that the configuration sets.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube_client::Client;
use kubelet_core::ConfigObjects;
use tokio_util::sync::CancellationToken;

use super::config_objects::ApiServerConfigObjects;
use super::watches::ConfigObjectWatches;
use crate::error::{Error, Result};
use crate::kubelet_configuration::KubeletConfiguration;

/// Reads config maps and secrets from an API server by `configMapAndSecretChangeDetectionStrategy`:
/// [`ConfigObjectWatches`] for `Watch`, [`ApiServerConfigObjects`] for `Get` and `Cache`. An object is never older
/// than with the kubelet's `Cache`.
///
/// Corresponds to the kubelet's `secret.Manager` and `configmap.Manager`.
pub struct ConfigObjectManager(By);

enum By {
    Watch(ConfigObjectWatches),
    Get(ApiServerConfigObjects),
}

impl ConfigObjectManager {
    /// What `configMapAndSecretChangeDetectionStrategy` can be.
    pub const STRATEGIES: [&str; 3] = ["Get", "Cache", "Watch"];

    /// A manager for the API server of `client`. It sends no request before the first object is needed.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] if there is no such strategy.
    pub fn new(client: Client, config: &KubeletConfiguration) -> Result<Self> {
        match config.config_map_and_secret_change_detection_strategy.as_str() {
            "Watch" => Ok(Self(By::Watch(ConfigObjectWatches::new(client)))),
            "Get" | "Cache" => Ok(Self(By::Get(ApiServerConfigObjects::new(client)))),
            unknown => Err(Error::Misconfigured {
                problems: vec![format!("unknown configmap and secret manager mode: {unknown}")],
            }),
        }
    }

    /// The handle that reads objects. With `Watch` it returns nothing before the manager [runs](Self::run).
    pub fn handle(&self) -> Arc<dyn ConfigObjects> {
        match &self.0 {
            By::Watch(watches) => Arc::new(watches.handle()),
            By::Get(objects) => Arc::new(objects.clone()),
        }
    }

    /// Keeps the objects up to date until `shutdown`. Each minute it drops the objects that none of `pods` refers
    /// to.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all watches. The handle still returns the objects seen last.
    pub async fn run(self, pods: impl Fn() -> Vec<Arc<Pod>>, shutdown: CancellationToken) {
        match self.0 {
            By::Watch(watches) => watches.run(pods, shutdown).await,
            By::Get(objects) => objects.run(pods, shutdown).await,
        }
    }
}

kubelet_core::impl_debug!(ConfigObjectManager);
