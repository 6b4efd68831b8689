//! `volumesInUse`

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use super::status;
use crate::{NodeStatusSetter, Result, VolumesInUse};

/// The attached volumes that must not be detached (`nodestatus.VolumesInUse`).
pub(crate) struct Volumes {
    pub(crate) volumes: Arc<dyn VolumesInUse>,
}

#[async_trait]
impl NodeStatusSetter for Volumes {
    fn name(&self) -> &str {
        "volumesInUse"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        // Until they are known, keep what an earlier agent reported.
        if let Some(volumes) = self.volumes.volumes_in_use() {
            status(node).volumes_in_use = Some(volumes).filter(|volumes| !volumes.is_empty());
        }
        Ok(())
    }
}
