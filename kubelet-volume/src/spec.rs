//! What is mounted: a volume of a pod's spec, or a persistent volume.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec, Volume};

/// A volume as plugins see it (the kubelet's `volume.Spec`): one that stands in the pod's spec, or the persistent volume
/// that its claim is bound to.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeSpec {
    /// Where it comes from.
    pub source: VolumeSource,
    /// The claim of the pod asks for a read-only mount.
    pub read_only: bool,
    /// It stood in the pod's spec as a volume of an in-tree plugin, and was translated for a CSI driver
    /// (`InlineVolumeSpecForCSIMigration`).
    pub migrated_inline: bool,
    /// It was a volume of an in-tree plugin, and was translated for a CSI driver (`Migrated`).
    pub migrated: bool,
}

/// Where a [`VolumeSpec`] comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// A volume of the pod's spec.
    Pod(Arc<Volume>),
    /// A persistent volume.
    Persistent(Arc<PersistentVolume>),
}

impl VolumeSpec {
    /// A volume of a pod's spec.
    pub fn of_pod(volume: Arc<Volume>) -> Self {
        Self {
            source: VolumeSource::Pod(volume),
            read_only: false,
            migrated_inline: false,
            migrated: false,
        }
    }

    /// A persistent volume.
    pub fn persistent(volume: Arc<PersistentVolume>, read_only: bool) -> Self {
        Self {
            source: VolumeSource::Persistent(volume),
            read_only,
            migrated_inline: false,
            migrated: false,
        }
    }

    /// The name of its folder in the pod's folder: that of the pod's volume, or of the persistent volume (`Spec.Name`).
    pub fn name(&self) -> &str {
        match &self.source {
            VolumeSource::Pod(volume) => &volume.name,
            VolumeSource::Persistent(volume) => volume.metadata.name.as_deref().unwrap_or_default(),
        }
    }

    /// The volume of the pod's spec, if it is one.
    pub fn pod_volume(&self) -> Option<&Volume> {
        match &self.source {
            VolumeSource::Pod(volume) => Some(volume),
            VolumeSource::Persistent(_) => None,
        }
    }

    /// The spec of the persistent volume, if it is one.
    pub fn persistent_volume(&self) -> Option<&PersistentVolumeSpec> {
        match &self.source {
            VolumeSource::Pod(_) => None,
            VolumeSource::Persistent(volume) => volume.spec.as_ref(),
        }
    }

    /// Whether containers get it as a block device (`volumeMode: Block`).
    pub fn is_block(&self) -> bool {
        let mode = self
            .persistent_volume()
            .and_then(|spec| spec.volume_mode.as_deref());
        mode == Some("Block")
    }

    /// The mount options in the spec of the persistent volume; a volume of a pod's spec has none.
    pub fn mount_options(&self) -> &[String] {
        let options = self
            .persistent_volume()
            .and_then(|spec| spec.mount_options.as_deref());
        options.unwrap_or_default()
    }
}
