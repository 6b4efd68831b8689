//! CSI drivers (`pkg/volume/csi`).

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
