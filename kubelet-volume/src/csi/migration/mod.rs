//! Volumes of in-tree plugins whose work CSI drivers do now (`csi-translation-lib`, as far as a node needs it).
//!
//! An in-tree plugin is mounted by its CSI driver: [`translate`] makes the CSI volume of its volume.

mod aws_ebs;
mod azure_disk;
mod azure_file;
mod cinder;
mod gce_pd;
mod portworx;
mod topology;
mod vsphere;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{Error, Result, VolumeSource, VolumeSpec};

/// The in-tree plugins whose volumes are translated, sorted.
pub const IN_TREE_PLUGINS: [&str; 7] = [
    aws_ebs::IN_TREE,
    azure_disk::IN_TREE,
    azure_file::IN_TREE,
    cinder::IN_TREE,
    gce_pd::IN_TREE,
    portworx::IN_TREE,
    vsphere::IN_TREE,
];

/// Makes the CSI volume of a volume of an in-tree plugin (`TranslateInTreeSpecToCSI`); `None` if it is of no such plugin.
/// `namespace` is that of the pod.
///
/// # Errors
///
/// If the volume has no equivalent, for example because its id is malformed.
pub fn translate(spec: &VolumeSpec, namespace: &str) -> Result<Option<VolumeSpec>> {
    let translated = match &spec.source {
        VolumeSource::Persistent(volume) => translate_persistent(volume),
        VolumeSource::Pod(volume) => translate_inline(volume, namespace),
    };
    Ok(translated?.map(|volume| VolumeSpec {
        read_only: spec.read_only,
        migrated_inline: matches!(spec.source, VolumeSource::Pod(_)),
        migrated: true,
        ..VolumeSpec::persistent(Arc::new(volume), false)
    }))
}

fn translate_persistent(volume: &PersistentVolume) -> Result<Option<PersistentVolume>> {
    for translate in [
        aws_ebs::persistent,
        azure_disk::persistent,
        azure_file::persistent,
        cinder::persistent,
        gce_pd::persistent,
        portworx::persistent,
        vsphere::persistent,
    ] {
        let Some(source) = translate(volume)? else {
            continue;
        };
        let mut translated = volume.clone();
        if let Some(spec) = &mut translated.spec {
            spec.aws_elastic_block_store = None;
            spec.azure_disk = None;
            spec.azure_file = None;
            spec.cinder = None;
            spec.gce_persistent_disk = None;
            spec.portworx_volume = None;
            spec.vsphere_volume = None;
            if source.driver == gce_pd::DRIVER {
                spec.access_modes = gce_pd::access_modes(spec.access_modes.take());
            }
        }
        if let Some(keys) = topology_keys(&source.driver) {
            topology::translate(&mut translated, keys);
        }
        if let Some(spec) = &mut translated.spec {
            spec.csi = Some(source);
        }
        return Ok(Some(translated));
    }
    Ok(None)
}

/// The labels that the driver has for zone and region.
fn topology_keys(driver: &str) -> Option<topology::Keys> {
    let (zone, region) = match driver {
        aws_ebs::DRIVER => (aws_ebs::ZONE, None),
        cinder::DRIVER => (cinder::ZONE, None),
        gce_pd::DRIVER => (gce_pd::ZONE, None),
        vsphere::DRIVER => (vsphere::ZONE, Some(vsphere::REGION)),
        _ => return None,
    };
    Some(topology::Keys { zone, region })
}

fn translate_inline(volume: &Volume, namespace: &str) -> Result<Option<PersistentVolume>> {
    for translate in [
        aws_ebs::inline,
        azure_disk::inline,
        azure_file::inline,
        cinder::inline,
        gce_pd::inline,
        portworx::inline,
        vsphere::inline,
    ] {
        let Some(Inline { name, mode, source }) = translate(volume, namespace)? else {
            continue;
        };
        return Ok(Some(PersistentVolume {
            metadata: ObjectMeta {
                name: Some(name),
                ..Default::default()
            },
            spec: Some(PersistentVolumeSpec {
                access_modes: Some(vec![mode.to_owned()]),
                csi: Some(source),
                volume_mode: Some("Filesystem".to_owned()),
                ..Default::default()
            }),
            status: None,
        }));
    }
    Ok(None)
}

/// A volume of a pod's spec, translated.
struct Inline {
    /// Unique for each disk: it is part of paths.
    name: String,
    mode: &'static str,
    source: CSIPersistentVolumeSource,
}

impl Inline {
    fn new(mode: &'static str, source: CSIPersistentVolumeSource) -> Self {
        Self {
            name: format!("{}-{}", source.driver, source.volume_handle),
            mode,
            source,
        }
    }
}

fn source(driver: &str, handle: impl Into<String>) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: driver.to_owned(),
        volume_handle: handle.into(),
        volume_attributes: Some(BTreeMap::new()),
        ..Default::default()
    }
}

/// Drivers treat a missing type and an empty one alike; the API has no empty one.
fn fs_type(fs_type: Option<&String>) -> Option<String> {
    fs_type.filter(|fs_type| !fs_type.is_empty()).cloned()
}

fn attributes<const N: usize>(values: [(&str, String); N]) -> Option<BTreeMap<String, String>> {
    let values = values.into_iter();
    Some(values.map(|(key, value)| (key.to_owned(), value)).collect())
}

const READ_WRITE_ONCE: &str = "ReadWriteOnce";
const READ_ONLY_MANY: &str = "ReadOnlyMany";
const READ_WRITE_MANY: &str = "ReadWriteMany";

fn mode_of(read_only: Option<bool>) -> &'static str {
    match read_only.unwrap_or(false) {
        true => READ_ONLY_MANY,
        false => READ_WRITE_ONCE,
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::Unsupported {
        message: message.into(),
    }
}

/// Whether the volume was made by [`translate`].
pub(crate) fn is_migrated(spec: &VolumeSpec) -> bool {
    spec.migrated
}
