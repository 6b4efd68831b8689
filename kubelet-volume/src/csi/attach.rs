//! The attachment of volumes to the node: the attach-detach controller makes it, the node waits for it
//! (`csi_attacher.go`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::allocatable::update_allocatable;
use super::paths::attachment_name;
use super::plugin::{CsiPlugin, not_found};
use super::source::{Source, named, persistent};
use crate::{AttachableVolumePlugin, Error, Result, VolumeSpec};

#[async_trait]
impl AttachableVolumePlugin for CsiPlugin {
    async fn can_attach(&self, spec: &VolumeSpec) -> Result<bool> {
        match Source::of(spec)? {
            Source::Inline(_) => Ok(false),
            Source::Persistent(csi) => Ok(!self.skips_attach(&csi.driver).await?),
        }
    }

    async fn attach(&self, _: &VolumeSpec, _: &str) -> Result<String> {
        Err(Error::failed(
            "attaching volumes from the kubelet is not supported",
        ))
    }

    /// Returns the name of the attachment: a driver finds the device itself.
    async fn wait_for_attach(&self, spec: &VolumeSpec, _: &str, _: &Arc<Pod>) -> Result<String> {
        let source = persistent(spec).map_err(|error| {
            Error::failed(named(format_args!(
                "attacher.WaitForAttach failed to extract CSI volume source: {error}"
            )))
        })?;
        let handle = &source.volume_handle;
        let name = attachment_name(handle, &source.driver, &self.node_name);
        let read = match self.objects.attachment(&name).await {
            Ok(Some(attachment)) => Ok(attachment),
            Ok(None) => Err(not_found(&name)),
            Err(error) => Err(error.to_string()),
        };
        let attachment = read.map_err(|error| {
            Error::failed(format!(
                "volume {handle} has GET error for volume attachment {name}: {error}"
            ))
        })?;
        match is_attached(&attachment)? {
            true => Ok(name),
            false => Err(Error::failed(format!(
                "volume {handle} is not attached for volume attachment {name}"
            ))),
        }
    }

    async fn detach(&self, _: &str, _: &str) -> Result<()> {
        Err(Error::failed(
            "detaching volumes from the kubelet is not supported",
        ))
    }

    /// Only for drivers with `nodeAllocatableUpdatePeriodSeconds`. It then also reports how many volumes the node can have.
    async fn is_exhausted(&self, spec: &VolumeSpec) -> bool {
        let Ok(source) = persistent(spec) else {
            return false;
        };
        let driver = match self.driver(&source.driver).await {
            Ok(driver) => driver,
            Err(error) => {
                tracing::error!(driver = %source.driver, %error, "Failed to retrieve CSIDriver");
                return false;
            }
        };
        let period = driver.and_then(|driver| driver.spec.node_allocatable_update_period_seconds);
        if period.unwrap_or(0) == 0 {
            return false;
        }
        let name = attachment_name(&source.volume_handle, &source.driver, &self.node_name);
        let attachment = match self.objects.attachment(&name).await {
            Ok(attachment) => attachment,
            Err(error) => {
                tracing::error!(attachment = %name, %error, "Failed to get volume attachment");
                return false;
            }
        };
        let status = attachment.and_then(|attachment| attachment.status);
        let error = status.and_then(|status| status.attach_error);
        let code = error.and_then(|error| error.error_code);
        if code != Some(i32::from(tonic::Code::ResourceExhausted)) {
            return false;
        }
        let updated = update_allocatable(&self.drivers, &*self.node_info, &source.driver).await;
        if let Err(error) = updated {
            tracing::error!(driver = %source.driver, %error, "Failed to update CSIDriver");
        }
        true
    }
}

/// (`verifyAttachmentStatus`)
fn is_attached(attachment: &VolumeAttachment) -> Result<bool> {
    if attachment.metadata.deletion_timestamp.is_some() {
        return Err(Error::failed("volume attachment is being deleted"));
    }
    let Some(status) = &attachment.status else {
        return Ok(false);
    };
    match (&status.attach_error, status.attached) {
        (_, true) => Ok(true),
        (Some(error), false) => Err(Error::failed(error.message.clone().unwrap_or_default())),
        (None, false) => Ok(false),
    }
}
