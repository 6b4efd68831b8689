//! `azureDisk`

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, CSIPersistentVolumeSource, PersistentVolume, Volume,
};

use super::{Inline, READ_WRITE_ONCE, attributes, fs_type, refused, source};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/azure-disk";
const DRIVER: &str = "disk.csi.azure.com";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let spec = volume.spec.as_ref();
    let disk = spec.and_then(|spec| spec.azure_disk.as_ref());
    disk.map(translated).transpose()
}

pub(super) fn inline(volume: &Volume, _: &str) -> Result<Option<Inline>> {
    let source = volume.azure_disk.as_ref().map(translated).transpose()?;
    Ok(source.map(|source| Inline {
        name: source.volume_handle.clone(),
        mode: READ_WRITE_ONCE,
        source,
    }))
}

fn translated(disk: &AzureDiskVolumeSource) -> Result<CSIPersistentVolumeSource> {
    let kind = disk.kind.as_deref().unwrap_or(MANAGED);
    if !kind.eq_ignore_ascii_case(MANAGED) {
        return Err(refused(format!("kind({kind}) is not supported in csi migration")));
    }
    let mut volume_attributes = attributes([("kind", MANAGED.to_owned())]);
    let all = volume_attributes.get_or_insert_default();
    if let Some(mode) = disk.caching_mode.as_ref().filter(|mode| !mode.is_empty()) {
        all.insert("cachingmode".to_owned(), mode.clone());
    }
    if let Some(fs_type) = &disk.fs_type {
        all.insert("fstype".to_owned(), fs_type.clone());
    }
    Ok(CSIPersistentVolumeSource {
        read_only: disk.read_only,
        fs_type: fs_type(disk.fs_type.as_ref()),
        volume_attributes,
        ..source(DRIVER, disk.disk_uri.clone())
    })
}

const MANAGED: &str = "Managed";
