//! The node itself, as kubelet v1.36 tells it to an API server.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "certificates")]
pub mod certificate;
mod error;
mod facts;
mod heartbeat;
mod host_network;
mod hostname;
mod informer;
mod lease;
mod local_node;
mod machine;
mod node_ip;
mod node_patch;
mod registration;
mod reservation;
mod setter;
mod setters;
mod startup_latency;
mod status;

pub use error::{BoxError, Error, Result};
pub use facts::{
    NodeRuntime, PodCidrs, Pressure, ReadyCheck, RuntimeFeatures, RuntimeHandler, RuntimeImage, VolumesInUse,
};
pub use heartbeat::HeartbeatClient;
pub use host_network::{DefaultRoute, HostNetwork, Interface, SystemNetwork};
pub use hostname::hostname;
pub use informer::{NodeInformer, NodeInformerHandle};
pub use lease::{LeaseConfig, LeaseController};
pub use local_node::{LocalNode, LocalNodeBuilder, NodeConfig};
pub use machine::{HugePages, MachineInfo};
pub use node_ip::{node_host_ips, parse_node_ip};
pub use registration::{NodeRegistration, Registered};
pub use reservation::Reservation;
pub use setter::NodeStatusSetter;
pub use status::{NodeStatusConfig, NodeStatusHandle, NodeStatusUpdater};
