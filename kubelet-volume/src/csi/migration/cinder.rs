//! `cinder`

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, Volume};

use super::{Inline, READ_WRITE_ONCE, fs_type, source};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/cinder";
pub(super) const DRIVER: &str = "cinder.csi.openstack.org";
pub(super) const ZONE: &str = "topology.cinder.csi.openstack.org/zone";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let disk = volume.spec.as_ref().and_then(|spec| spec.cinder.as_ref());
    Ok(disk.map(|disk| translated(&disk.volume_id, disk.fs_type.as_ref(), disk.read_only)))
}

pub(super) fn inline(volume: &Volume, _: &str) -> Result<Option<Inline>> {
    let disk = volume.cinder.as_ref();
    let source = disk.map(|disk| translated(&disk.volume_id, disk.fs_type.as_ref(), disk.read_only));
    Ok(source.map(|source| Inline::new(READ_WRITE_ONCE, source)))
}

fn translated(id: &str, of_type: Option<&String>, read_only: Option<bool>) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        read_only,
        fs_type: fs_type(of_type),
        ..source(DRIVER, id)
    }
}
