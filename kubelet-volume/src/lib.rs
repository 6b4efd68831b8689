//! The volumes of a Kubernetes node (`pkg/kubelet/volumemanager` and `pkg/volume`).
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(feature = "apiserver")]
mod api_server_volume_objects;
#[cfg(feature = "csi")]
#[cfg_attr(docsrs, doc(cfg(feature = "csi")))]
pub mod csi;
mod error;
mod filesystem;
mod manager;
mod mounter;
mod plugin;
mod plugins;
mod spec;
mod volume_objects;

#[cfg(feature = "apiserver")]
pub use api_server_volume_objects::ApiServerVolumeObjects;
pub use error::{Error, Result};
pub use filesystem::host_mounter::HostMounter;
pub use manager::{NodeVolumes, NodeVolumesBuilder, NodeVolumesHandle};
pub use mounter::{MountPoint, Mounter};
pub use plugin::{
    AttachableVolumePlugin, Attributes, BlockVolumePlugin, DeviceMount, DeviceMountableVolumePlugin,
    Expansion, FsGroupChangePolicy, NodeExpandableVolumePlugin, OnDisk, PodMount, SetUp, VolumePlugin,
};
pub use plugins::InTreePlugins;
pub use spec::{VolumeSource, VolumeSpec};
pub use volume_objects::{NoVolumeObjects, VolumeObjects};
