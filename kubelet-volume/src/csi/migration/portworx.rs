//! `portworxVolume`

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, SecretReference, Volume};

use super::{Inline, fs_type, mode_of, source};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/portworx-volume";
const DRIVER: &str = "pxd.portworx.com";
const SECRET_NAME: &str = "openstorage.io/auth-secret-name";
const SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let spec = volume.spec.as_ref();
    let Some(disk) = spec.and_then(|spec| spec.portworx_volume.as_ref()) else {
        return Ok(None);
    };
    let annotations = volume.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|all| all.get(key)).cloned();
    let secret = match (annotation(SECRET_NAME), annotation(SECRET_NAMESPACE)) {
        (Some(name), Some(namespace)) => Some(SecretReference {
            name: Some(name),
            namespace: Some(namespace),
        }),
        _ => None,
    };
    Ok(Some(CSIPersistentVolumeSource {
        fs_type: fs_type(disk.fs_type.as_ref()),
        controller_publish_secret_ref: secret.clone(),
        controller_expand_secret_ref: secret.clone(),
        node_stage_secret_ref: secret.clone(),
        node_publish_secret_ref: secret.clone(),
        node_expand_secret_ref: secret,
        ..source(DRIVER, disk.volume_id.clone())
    }))
}

pub(super) fn inline(volume: &Volume, _: &str) -> Result<Option<Inline>> {
    let Some(disk) = &volume.portworx_volume else {
        return Ok(None);
    };
    let source = CSIPersistentVolumeSource {
        fs_type: fs_type(disk.fs_type.as_ref()),
        ..source(DRIVER, disk.volume_id.clone())
    };
    Ok(Some(Inline::new(mode_of(disk.read_only), source)))
}
