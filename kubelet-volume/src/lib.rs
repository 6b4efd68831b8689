//! The volumes of a Kubernetes node (`pkg/kubelet/volumemanager` and `pkg/volume`).
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod error;
mod filesystem;
mod local;
mod manager;
mod mounter;
mod plugin;
mod plugins;
mod spec;
mod volume_objects;

pub use error::{Error, Result};
pub use filesystem::host_mounter::HostMounter;
pub use local::LocalVolumes;
pub use manager::{NodeVolumes, NodeVolumesBuilder, NodeVolumesHandle};
pub use mounter::{MountPoint, Mounter};
pub use plugin::{
    AttachableVolumePlugin, Attributes, BlockVolumePlugin, DeviceMount, DeviceMountableVolumePlugin,
    Expansion, FsGroupChangePolicy, NodeExpandableVolumePlugin, OnDisk, PodMount, SetUp, VolumePlugin,
};
pub use plugins::InTreePlugins;
pub use spec::{VolumeSource, VolumeSpec};
pub use volume_objects::{NoVolumeObjects, VolumeObjects};
