//! `vsphereVolume`

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, Volume, VsphereVirtualDiskVolumeSource,
};

use super::{Inline, READ_WRITE_ONCE, fs_type, source};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/vsphere-volume";
pub(super) const DRIVER: &str = "csi.vsphere.vmware.com";
pub(super) const ZONE: &str = "topology.csi.vmware.com/zone";
pub(super) const REGION: &str = "topology.csi.vmware.com/region";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let disk = volume.spec.as_ref().and_then(|spec| spec.vsphere_volume.as_ref());
    Ok(disk.map(translated))
}

pub(super) fn inline(volume: &Volume, _: &str) -> Result<Option<Inline>> {
    let disk = volume.vsphere_volume.as_ref();
    Ok(disk.map(|disk| Inline::new(READ_WRITE_ONCE, translated(disk))))
}

fn translated(disk: &VsphereVirtualDiskVolumeSource) -> CSIPersistentVolumeSource {
    let mut csi = CSIPersistentVolumeSource {
        fs_type: fs_type(disk.fs_type.as_ref()),
        ..source(DRIVER, disk.volume_path.clone())
    };
    if let Some(policy) = disk
        .storage_policy_name
        .as_ref()
        .filter(|policy| !policy.is_empty())
    {
        let attributes = csi.volume_attributes.get_or_insert_default();
        attributes.insert("storagepolicyname".to_owned(), policy.clone());
    }
    csi
}
