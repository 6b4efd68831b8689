//! The volumes of a Kubernetes node: the volume manager of a kubelet and its plugins (`pkg/kubelet/volumemanager` and
//! `pkg/volume`).
//!
//! [`NodeVolumes`] mounts what pods want and unmounts what they leave. [`InTreePlugins`] are the kinds of volumes that
//! belong to the kubelet itself, with the same folders, modes and contents. A kind of your own is a [`VolumePlugin`].
//!
//! A volume is updated as soon as the config map or secret that it contains changes, and nothing runs while nothing changes.
//! A plugin that hangs, for example because an NFS server is gone, holds up the pods that use the same volume, and no
//! others. After a restart, the volumes that an earlier agent mounted are found on disk, without an API server.
//!
//! This sets up the volumes of one pod:
//!
//! ```
//! use std::sync::Arc;
//!
//! use kubelet_core::{PodExt, VolumeManager};
//! use kubelet_volume::{InTreePlugins, NodeVolumes};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = tempfile::tempdir()?;
//! let volumes = NodeVolumes::builder(root.path()).plugins(InTreePlugins::new(root.path()).build()).build()?;
//! let (handle, shutdown) = (volumes.handle(), CancellationToken::new());
//! let running = tokio::spawn(volumes.run(shutdown.clone()));
//!
//! let pod = Arc::new(serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "web", "namespace": "default", "uid": "1-2-3", "labels": {"app": "web"}},
//!     "spec": {
//!         "volumes": [
//!             {"name": "scratch", "emptyDir": {}},
//!             {"name": "info", "downwardAPI": {
//!                 "items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
//!         ],
//!         "containers": [{"name": "main", "volumeMounts": [
//!             {"name": "scratch", "mountPath": "/tmp"}, {"name": "info", "mountPath": "/info"}]}],
//!     },
//! }))?);
//! handle.wait_for_attach_and_mount(&pod).await?;
//! let info = &handle.mounted_volumes(&pod.uid())["info"];
//! assert_eq!(std::fs::read_to_string(info.path.join("name"))?, "web");
//! handle.wait_for_unmount(&pod).await?;
//! assert!(handle.mounted_volumes(&pod.uid()).is_empty());
//! # shutdown.cancel();
//! # running.await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `apiserver`: `ApiServerVolumeObjects` reads claims and persistent volumes from an API server.
//! * `csi`: volumes of CSI drivers, and the gRPC services to write a driver or a fake one.
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
mod measuring;
mod mounter;
mod plugin;
mod plugins;
mod quotas;
mod spec;
mod volume_objects;

#[cfg(feature = "apiserver")]
pub use api_server_volume_objects::ApiServerVolumeObjects;
pub use error::{Error, Result};
pub use filesystem::host_mounter::HostMounter;
pub use manager::{NodeVolumes, NodeVolumesBuilder, NodeVolumesHandle, SelinuxContexts};
pub use mounter::{MountPoint, Mounter};
pub use plugin::{
    AttachableVolumePlugin, Attributes, BlockVolumePlugin, DeviceMount, DeviceMountableVolumePlugin,
    Expansion, FsGroupChangePolicy, NodeExpandableVolumePlugin, OnDisk, PodMount, SetUp, VolumePlugin,
};
pub use plugins::InTreePlugins;
pub use quotas::{ProjectId, ProjectQuotas, ProjectUsage, QuotaPrograms, VolumeQuotas};
pub use spec::{VolumeSource, VolumeSpec};
pub use volume_objects::{NoVolumeObjects, VolumeObjects};
