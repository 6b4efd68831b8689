//! The attachment of volumes to the node: the attach-detach controller makes it, the node waits for it
//! (`csi_attacher.go`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;

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
