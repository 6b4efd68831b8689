//! The objects of an API server that CSI volumes need.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::Result;

/// Reads what CSI volumes need of an API server. With the feature `apiserver`,
/// `ApiServerCsiObjects` does it; [`FixedCsiObjects`] needs no API server.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait CsiObjects: Send + Sync {
    /// What the cluster says of the driver, from a cache.
    ///
    /// # Errors
    ///
    /// If the cache was not filled in time: the volume then waits.
    async fn driver(&self, name: &str) -> Result<Option<Arc<CSIDriver>>>;

    /// Changes when any driver changes. `None`, the default: changes are not observed.
    fn driver_changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// The attachment of this name, from the API server itself.
    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>>;

    /// A secret for the driver, from the API server itself.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>>;
}

/// Objects in memory: for an agent without an API server, and for tests. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FixedCsiObjects {
    objects: Arc<RwLock<Objects>>,
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Objects {
    drivers: BTreeMap<String, Arc<CSIDriver>>,
    attachments: BTreeMap<String, VolumeAttachment>,
    secrets: BTreeMap<(String, String), Arc<Secret>>,
}

impl FixedCsiObjects {
    /// No objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a driver.
    pub fn set_driver(&self, driver: CSIDriver) {
        let name = driver.metadata.name.clone().unwrap_or_default();
        self.objects.write().drivers.insert(name, Arc::new(driver));
        self.changes.send_modify(|count| *count += 1);
    }

    /// Adds or replaces an attachment.
    pub fn set_attachment(&self, attachment: VolumeAttachment) {
        let name = attachment.metadata.name.clone().unwrap_or_default();
        self.objects.write().attachments.insert(name, attachment);
    }

    /// Adds or replaces a secret.
    pub fn set_secret(&self, secret: Secret) {
        let metadata = &secret.metadata;
        let key = (
            metadata.namespace.clone().unwrap_or_default(),
            metadata.name.clone().unwrap_or_default(),
        );
        self.objects.write().secrets.insert(key, Arc::new(secret));
    }
}

#[async_trait]
impl CsiObjects for FixedCsiObjects {
    async fn driver(&self, name: &str) -> Result<Option<Arc<CSIDriver>>> {
        Ok(self.objects.read().drivers.get(name).cloned())
    }

    fn driver_changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }

    async fn attachment(&self, name: &str) -> Result<Option<VolumeAttachment>> {
        Ok(self.objects.read().attachments.get(name).cloned())
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<Arc<Secret>>> {
        let key = (namespace.to_owned(), name.to_owned());
        Ok(self.objects.read().secrets.get(&key).cloned())
    }
}
