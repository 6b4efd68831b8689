//! File systems and volumes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// The usage of a file system (`FsStats`).
///
/// `used_bytes` and `inodes_used` may be those of one user of the file system, e.g. a container. Then they do not complement
/// what is free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FsStats {
    /// When it was measured.
    pub time: Option<Time>,
    /// The free bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// The size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// The used bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The number of free inodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    /// The number of inodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    /// The number of used inodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}

/// The file systems of the container runtime (`RuntimeStats`). They may be the same, and may be the root file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeStats {
    /// Where images are stored. The used bytes are those of images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<FsStats>,
    /// Where the writable layers of containers are stored. The used bytes are those of these layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<FsStats>,
}

/// The usage of a volume (`VolumeStats`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeStats {
    /// Its file system.
    #[serde(flatten)]
    pub fs: FsStats,
    /// The name of the volume in the pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its claim, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_ref: Option<PvcReference>,
    /// Its health, if the driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_health_stats: Option<VolumeHealthStats>,
}

/// A persistent volume claim (`PVCReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PvcReference {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
}

/// The health of a volume (`VolumeHealthStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeHealthStats {
    /// The volume cannot be used, or works badly.
    pub abnormal: bool,
}
