//! The content of an image (`pkg/volume/image`).

use std::path::PathBuf;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ImageVolumeSource, Volume};

use crate::{Attributes, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// `image` volumes: the container runtime pulls and mounts them, so there is nothing to do.
pub(super) struct ImagePlugin;

#[async_trait]
impl VolumePlugin for ImagePlugin {
    fn name(&self) -> &str {
        "kubernetes.io/image"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        spec.pod_volume().is_some_and(|volume| volume.image.is_some())
    }

    fn path(&self, _: &PodMount) -> PathBuf {
        PathBuf::new()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        Attributes {
            read_only: true,
            managed: false,
            selinux_relabel: false,
        }
    }

    async fn set_up(&self, _: &PodMount) -> Result<SetUp> {
        Ok(SetUp::default())
    }

    async fn tear_down(&self, _: &OnDisk) -> Result<()> {
        Ok(())
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(std::sync::Arc::new(Volume {
            name: found.name.clone(),
            image: Some(ImageVolumeSource::default()),
            ..Volume::default()
        })))
    }
}
