//! Grows the file system of a volume on the node (`expander.go`).

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::capability::{block, mounted};
use super::plugin::{CsiPlugin, names_of};
use super::source::{access_mode, named, persistent};
use super::v1::{CapacityRange, NodeExpandVolumeRequest};
use crate::{Error, Expansion, NodeExpandableVolumePlugin, Result, VolumeSpec};

#[async_trait]
impl NodeExpandableVolumePlugin for CsiPlugin {
    async fn requires_expansion(&self, _: &VolumeSpec) -> bool {
        // Whether the driver does it on the node, node_expand finds out.
        true
    }

    async fn node_expand(&self, expansion: &Expansion) -> Result<bool> {
        let spec = &expansion.spec;
        let source = persistent(spec)?;
        let mut session = self.session(&source.driver, Some(spec)).map_err(Error::failed)?;
        let has = session.capabilities().await.map_err(|error| {
            Error::failed(format!(
                "Expander.NodeExpand failed to check if node supports expansion : {error}"
            ))
        })?;
        if !has.expand {
            return Err(Error::Unsupported {
                message: format!("NodeExpand is not supported by the CSI driver {}", source.driver),
            });
        }
        let mut secrets = BTreeMap::new();
        if let Some(secret) = &source.node_expand_secret_ref {
            let (namespace, name) = names_of(secret);
            secrets = self.secret(secret).await.map_err(|error| {
                Error::failed(format!(
                    "expander.NodeExpand failed to get NodeExpandSecretRef {namespace}/{name}: {error}"
                ))
            })?;
        }
        let fs_type = source.fs_type.as_deref().unwrap_or_default();
        let options = spec.mount_options().to_vec();
        let (volume_path, staging, capability) = match spec.is_block() {
            true => (
                expansion.device_path.clone(),
                self.paths.block(spec.name())?.staging,
                block(spec, has),
            ),
            false => (
                expansion.dir.display().to_string(),
                expansion.device_mount_path.clone(),
                mounted(access_mode(spec), has, fs_type, options, None),
            ),
        };
        if volume_path.is_empty() {
            return Err(Error::failed(named(
                "Expander.NodeExpand failed: missing volume path",
            )));
        }
        let request = NodeExpandVolumeRequest {
            volume_id: source.volume_handle.clone(),
            volume_path,
            capacity_range: Some(CapacityRange {
                required_bytes: expansion.new_size,
                limit_bytes: 0,
            }),
            staging_target_path: staging.display().to_string(),
            volume_capability: Some(capability),
            secrets,
        };
        let Err(error) = session.expand(request).await else {
            return Ok(true);
        };
        let message = format!("Expander.NodeExpand failed to expand the volume : {error}");
        Err(match error.code {
            tonic::Code::FailedPrecondition => Error::FailedPrecondition { message },
            _ if error.is_infeasible() => Error::Infeasible {
                message: format!("Expander.NodeExpand failed to expand the volume {error}"),
            },
            _ if error.is_final() => Error::failed(message),
            _ => Error::uncertain(message),
        })
    }
}
