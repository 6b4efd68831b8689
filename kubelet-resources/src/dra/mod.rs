//! Dynamic resource allocation: the claims of pods are prepared through the plugins of DRA drivers.
//!
//! The scheduler allocates devices to a `ResourceClaim`, reserves it for a pod, and binds the pod to this node. Before a sandbox of the
//! pod is created, [`DraManagerHandle`] reads the pod's claims, notes them in the state file, and calls `NodePrepareResources` of each
//! driver. The drivers return CDI device ids, with which the containers are created. When all containers have stopped, and no other pod
//! uses the claim, the drivers unprepare it.
//!
//! Plugins that report the health of their devices (`NodeWatchResources`) are followed. The statuses of pods show it, and a pod is synced
//! when it changes. A report is valid for 30 s, or for as long as it says itself; then the health is `Unknown`. Reports outlast a restart in
//! the file `dra_health_state`.
//!
//! Whether a claim has admin access to its devices (`DRAAdminAccess`) concerns only the scheduler, the API server and the driver, which
//! reads the claim itself. It is prepared like any other.
//!
//! Needs the API version 1.36 of `k8s-openapi`, or a newer one. Answers to `pkg/kubelet/cm/dra`.
//!
//! | part | does |
//! |---|---|
//! | [`DraManager`] | the engine: connections, deletion of `ResourceSlice`s, claims of pods that are gone |
//! | [`DraManagerHandle`] | prepares, unprepares, and returns the CDI devices of a container |
//! | [`DraPlugins`] | registrations of plugins, for `kubelet-plugins` |
//! | [`ClaimObjects`] | what is read of an API server; `ApiServerClaims` with the feature `apiserver` |
//! | [`Dialer`], [`DriverPlugin`] | how a plugin is reached; replace it to test without sockets |
//! | [`read_claims`], [`write_claims`] | the state file `dra_manager_state` |

mod api;
#[cfg(feature = "apiserver")]
mod api_server;
mod checkpoint;
mod claim;
mod claims;
mod grpc;
mod handle;
mod health;
mod health_file;
pub mod health_v1alpha1;
mod health_watch;
mod links;
mod manager;
mod metrics;
mod names;
mod plugin;
mod plugins;
mod pod_resources;
mod prepare;
mod state_file;
mod status;
mod table;
mod unprepare;
pub mod v1;
pub mod v1beta1;
mod wire;

pub use api::ClaimObjects;
#[cfg(feature = "apiserver")]
#[cfg_attr(docsrs, doc(cfg(feature = "apiserver")))]
pub use api_server::ApiServerClaims;
pub use checkpoint::{DRA_MANAGER_STATE, read_claims, write_claims};
pub use claim::{ClaimState, Device, DriverState, Member};
pub use grpc::GrpcDialer;
pub use handle::DraManagerHandle;
pub use health::DEFAULT_HEALTH_TIMEOUT;
pub use health_file::DRA_HEALTH_STATE;
pub use manager::{DraManager, DraManagerBuilder, RECONCILE_PERIOD, WIPING_DELAY};
pub use plugin::{Connection, Dialer, DraService, DriverPlugin};
pub use plugins::{CALL_TIMEOUT, DraPlugins};

/// The feature gates that change what happens to claims, with their defaults in v1.36.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DraGates {
    /// `DRAExtendedResource`: extended resources of a container may be backed by a claim that the scheduler made.
    pub extended_resource: bool,
    /// `DRAWorkloadResourceClaims`: a claim may belong to the pod's group.
    pub workload_claims: bool,
    /// `ResourceHealthStatus`: plugins report the health of their devices, which statuses of pods show.
    pub health: bool,
    /// `ResourceHealthStatusMessage`: also the message about a device.
    pub health_message: bool,
}

impl Default for DraGates {
    fn default() -> Self {
        Self {
            extended_resource: true,
            workload_claims: false,
            health: true,
            health_message: true,
        }
    }
}
