//! Volumes of CSI drivers (`pkg/volume/csi`).
//!
//! [`CsiPlugin`] is a [`VolumePlugin`](crate::VolumePlugin): give it to the builder of
//! [`NodeVolumes`](crate::NodeVolumes), or call its operations yourself. [`CsiRegistration`] adds the drivers that
//! register with a [`PluginWatcher`](kubelet_plugins::PluginWatcher). [`CsiNodeReporter`] reports them to the cluster.
//! None of them needs an API server: [`FixedCsiObjects`] has objects in memory.
//!
//! This example mounts an inline volume of a pod, without a volume manager:
//!
//! ```
//! use std::sync::Arc;
//!
//! use kubelet_core::{PodExt, RootDir, VolumeLeases};
//! use kubelet_testing::MemoryCsi;
//! use kubelet_volume::csi::{CsiDrivers, CsiPlugin, FixedCsiObjects};
//! use kubelet_volume::{HostMounter, OnDisk, PodMount, VolumePlugin, VolumeSpec};
//! use serde_json::{from_value, json};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (root, socket) = (dir.path().join("kubelet"), dir.path().join("csi.sock"));
//! # let _served = MemoryCsi::new("disk.example.com").serve(&socket)?;
//! // The driver serves at this socket, and may mount inline volumes.
//! let drivers = CsiDrivers::new();
//! drivers.add("disk.example.com", &socket);
//! let objects = FixedCsiObjects::new();
//! objects.set_driver(from_value(json!({
//!     "metadata": {"name": "disk.example.com"},
//!     "spec": {"volumeLifecycleModes": ["Ephemeral"], "fsGroupPolicy": "None"},
//! }))?);
//! let mounter = Arc::new(HostMounter::new());
//! let csi = CsiPlugin::builder(RootDir::new(&root), "node-1", drivers, Arc::new(objects), mounter).build();
//!
//! let pod = from_value(json!({"metadata": {"name": "web", "namespace": "default", "uid": "1"}}))?;
//! let volume = from_value(json!({"name": "scratch", "csi": {"driver": "disk.example.com"}}))?;
//! let mount = PodMount {
//!     pod: Arc::new(pod),
//!     outer_name: "scratch".into(),
//!     spec: Arc::new(VolumeSpec::of_pod(Arc::new(volume))),
//!     dir: root.join("pods/1/volumes/kubernetes.io~csi/scratch"),
//!     device_mount_path: None,
//!     fs_group: None,
//!     fs_group_change_policy: Default::default(),
//!     selinux_label: None,
//!     leases: VolumeLeases::default(),
//! };
//! csi.set_up(&mount).await?;
//! println!("containers mount {}", csi.path(&mount).display());
//! # assert!(csi.path(&mount).exists());
//!
//! let (uid, name) = (mount.pod.uid(), "scratch".to_owned());
//! csi.tear_down(&OnDisk { uid, name, dir: mount.dir.clone(), is_block: false }).await?;
//! # assert!(!mount.dir.exists());
//! # Ok(())
//! # }
//! ```

mod allocatable;
#[cfg(feature = "apiserver")]
mod api_server;
mod attach;
mod block;
mod capability;
mod client;
mod expand;
pub mod migration;
mod mount_dir;
mod node_info;
mod objects;
mod paths;
mod plugin;
mod publish;
mod registry;
mod source;
mod stage;
mod stats;
mod status;
mod tokens;
mod transport;
pub mod v1;
mod versions;
mod volume_data;

pub use allocatable::AllocatableUpdater;
#[cfg(feature = "apiserver")]
pub use api_server::ApiServerCsiObjects;
pub use node_info::{CsiNodeInfo, CsiNodeObjects, CsiNodeReporter, DriverInfo, NoCsiNodeInfo};
pub use objects::{CsiObjects, FixedCsiObjects};
pub use plugin::{CsiPlugin, CsiPluginBuilder};
pub use registry::{CsiDrivers, CsiRegistration};

/// The name of the plugin (`CSIPluginName`).
pub const PLUGIN_NAME: &str = "kubernetes.io/csi";
