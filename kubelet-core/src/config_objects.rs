//! Config maps and secrets that pods refer to.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::Result;

/// Reads the objects that environment variables and volumes refer to (the kubelet's `configmap.Manager` and
/// `secret.Manager`).
#[async_trait]
pub trait ConfigObjects: Send + Sync {
    /// The config map, or `None` if there is none of this name.
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>>;
    /// The secret, or `None` if there is none of this name.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>>;
}

/// No config maps and secrets: for an agent without an API server. A container that refers to a non-optional one fails
/// with `CreateContainerConfigError`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConfigObjects;

#[async_trait]
impl ConfigObjects for NoConfigObjects {
    async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>> {
        Ok(None)
    }
    async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>> {
        Ok(None)
    }
}
