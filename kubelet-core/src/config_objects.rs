//! Config maps and secrets that pods refer to.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::sync::broadcast;

use crate::Result;

/// Reads the objects that environment variables and volumes refer to (the kubelet's `configmap.Manager` and
/// `secret.Manager`).
#[async_trait]
pub trait ConfigObjects: Send + Sync {
    /// The config map, or `None` if there is none of this name.
    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<Arc<ConfigMap>>>;
    /// The secret, or `None` if there is none of this name.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>>;

    /// Subscribes to the changes of all objects that were read. `None`, the default: changes are not observed, and who
    /// needs a newer object reads it again.
    ///
    /// A subscription begins before the read that it belongs to, so no change is lost.
    fn changes(&self) -> Option<ConfigObjectChanges> {
        None
    }
}

/// The stream of the objects that were created, changed or deleted. A subscriber that is too slow gets `Lagged`, and
/// then takes each object for changed.
pub type ConfigObjectChanges = broadcast::Receiver<ConfigObjectRef>;

/// A config map or secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigObjectRef {
    /// Whether it is a config map or a secret.
    pub kind: ConfigObjectKind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// The kinds of configuration that volumes and environment variables contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigObjectKind {
    /// A `ConfigMap`.
    ConfigMap,
    /// A `Secret`.
    Secret,
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
