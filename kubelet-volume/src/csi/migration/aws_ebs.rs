//! `awsElasticBlockStore`

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, CSIPersistentVolumeSource, PersistentVolume, Volume,
};

use super::{Inline, READ_WRITE_ONCE, attributes, fs_type, refused, source};
use crate::Result;

pub(super) const IN_TREE: &str = "kubernetes.io/aws-ebs";
pub(super) const DRIVER: &str = "ebs.csi.aws.com";
pub(super) const ZONE: &str = "topology.ebs.csi.aws.com/zone";

pub(super) fn persistent(volume: &PersistentVolume) -> Result<Option<CSIPersistentVolumeSource>> {
    let spec = volume.spec.as_ref();
    let disk = spec.and_then(|spec| spec.aws_elastic_block_store.as_ref());
    disk.map(translated).transpose()
}

pub(super) fn inline(volume: &Volume, _: &str) -> Result<Option<Inline>> {
    let disk = volume.aws_elastic_block_store.as_ref();
    let source = disk.map(translated).transpose()?;
    Ok(source.map(|source| Inline::new(READ_WRITE_ONCE, source)))
}

fn translated(disk: &AWSElasticBlockStoreVolumeSource) -> Result<CSIPersistentVolumeSource> {
    let handle = volume_id(&disk.volume_id).map_err(|why| {
        refused(format!(
            "failed to translate Kubernetes ID to EBS Volume ID {why} ({})",
            disk.volume_id
        ))
    })?;
    Ok(CSIPersistentVolumeSource {
        read_only: disk.read_only,
        fs_type: fs_type(disk.fs_type.as_ref()),
        volume_attributes: attributes([("partition", disk.partition.unwrap_or(0).to_string())]),
        ..source(DRIVER, handle)
    })
}

/// From `aws://<zone>/<id>`, `aws:///<id>` or the id itself (`KubernetesVolumeIDToEBSVolumeID`).
fn volume_id(id: &str) -> std::result::Result<&str, &'static str> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id);
    };
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let id = path.trim_matches('/');
    match id.starts_with("vol-") && !id.contains('/') {
        true => Ok(id),
        false => Err("Invalid format for AWS volume"),
    }
}
