//! The node itself, as kubelet v1.36 tells it to an API server: its registration, its status, its lease, and the
//! certificates it is known by. No pod, no container runtime.
//!
//! | an engine                | does                                                                          |
//! |--------------------------|-------------------------------------------------------------------------------|
//! | [`NodeInformer`]         | watches the node's object, for all who ask for it                             |
//! | [`NodeStatusUpdater`]    | registers the node ([`NodeRegistration`]) and keeps its status told            |
//! | [`LeaseController`]      | renews the lease that says that the node lives                                |
//! | [`NodeHeartbeat`]        | is the three together, as a kubelet has them                                  |
//! | [`certificate`]          | TLS bootstrap and rotation (feature `certificates`)                           |
//!
//! And for programs that are agents of a host: `HealthzServer` (feature `healthz`), `SystemdNotifier` (feature `systemd`),
//! `LockFile` (feature `lock`).
//!
//! What they tell comes from a [`LocalNode`]: what it is to be ([`NodeConfig`]), the machine ([`MachineInfo`], read or made
//! up), the host's addresses ([`HostNetwork`]), the runtime ([`NodeRuntime`]), what it must have to be ready
//! ([`ReadyCheck`]), what it runs out of ([`Pressure`]); each part is filled in by a [`NodeStatusSetter`] that can be
//! replaced, and others can be added. [`preflight`](preflight()) says what keeps a node from its cluster, and what to do
//! about it.
//!
//! # Example: a node that is ready, in virtual time
//!
//! Its API server is that of `kubelet-testing` (feature `api-server`), and tokio's feature `test-util` is on. A real one is
//! reached by any `kube_client::Client`; [`certificate::ApiServerAccess`] makes one of a node's kubeconfig and keeps its
//! certificate fresh. This node is ready whatever its runtime says: what is to keep it from that is a [`ReadyCheck`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use k8s_openapi::api::core::v1::Node;
//! use kubelet_node::{
//!     BoxError, FixedNetwork, HeartbeatClient, LeaseController, LocalNode, MachineInfo, NodeConfig, NodeInformer,
//!     NodeRegistration, NodeRuntime, NodeStatusUpdater,
//! };
//! use kubelet_testing::{ApiServer, User, eventually};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Pretend;
//!
//! #[async_trait]
//! impl NodeRuntime for Pretend {
//!     fn runtime_type(&self) -> &str {
//!         "pretend"
//!     }
//!     async fn version(&self) -> Result<String, BoxError> {
//!         Ok("1.0".into())
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let server = ApiServer::new();
//!     let client = || server.client_as(User::node("node-1"));
//!
//!     let mut machine = MachineInfo::new(2, 4 << 30); // or MachineInfo::read(root_dir)?
//!     machine.ephemeral_storage = Some(20 << 30);
//!     let mut config = NodeConfig::new("node-1");
//!     config.node_labels.insert("example.com/rack".into(), "7".into());
//!     let local = LocalNode::builder(config, machine)
//!         .network(FixedNetwork::new(["10.0.0.7".parse().unwrap()])) // or, by default, the host's
//!         .runtime(Arc::new(Pretend));
//!     let local = Arc::new(local.build());
//!
//!     let informer = NodeInformer::new(client(), "node-1").with_local_node(local.clone());
//!     let registration = NodeRegistration::new(client(), local.clone());
//!     let status = NodeStatusUpdater::new(local.clone(), informer.handle(), HeartbeatClient::new(client()))
//!         .with_registration(registration);
//!     let lease = LeaseController::new(HeartbeatClient::new(client()), "node-1");
//!
//!     let shutdown = CancellationToken::new();
//!     local.birth_cry();
//!     let agent = tokio::spawn({
//!         let shutdown = shutdown.clone();
//!         async move {
//!             tokio::join!(
//!                 informer.run(shutdown.clone()),
//!                 status.run(shutdown.clone()),
//!                 lease.run(shutdown)
//!             )
//!         }
//!     });
//!
//!     let node = eventually!(server.get::<Node>("", "node-1").unwrap(), |node| node.is_some()).unwrap();
//!     let status = node.status.unwrap_or_default();
//!     assert_eq!(status.node_info.unwrap_or_default().container_runtime_version, "pretend://1.0");
//!     assert_eq!(status.addresses.unwrap_or_default()[0].address, "10.0.0.7");
//!     assert_eq!(status.allocatable.unwrap_or_default()["memory"].0, "3996Mi"); // without 100 MiB
//!     assert!(status.conditions.unwrap_or_default().iter().any(|condition| {
//!         condition.type_ == "Ready" && condition.reason.as_deref() == Some("KubeletReady")
//!     }));
//!
//!     shutdown.cancel();
//!     agent.await.unwrap();
//! }
//! ```
//!
//! # Requests
//!
//! A node that is quiet makes one request each 10 s, its lease, and one each 5 minutes, its status, and holds one watch. It
//! asks for nothing that the Node authorizer and `NodeRestriction` do not allow a kubelet.
//!
//! # Time, randomness, tasks
//!
//! Every delay is `tokio::time`'s; wall-clock time comes from a [`Clock`](kubelet_core::Clock), randomness from a
//! [`Jitter`](kubelet_core::Jitter). No task is spawned: each engine is one future, whose owner spawns or joins it.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "certificates")]
pub mod certificate;
mod error;
mod facts;
#[cfg(any(feature = "healthz", feature = "systemd"))]
mod health;
#[cfg(feature = "healthz")]
mod healthz;
mod heartbeat;
mod host_network;
mod hostname;
mod informer;
mod lease;
mod local_node;
#[cfg(all(feature = "lock", target_os = "linux"))]
mod lock_file;
mod machine;
mod node_heartbeat;
mod node_ip;
mod node_patch;
mod preflight;
mod registration;
mod reservation;
mod runtime_version;
mod setter;
mod setters;
mod startup_latency;
mod status;
#[cfg(all(feature = "systemd", target_os = "linux"))]
mod systemd;

pub use error::{BoxError, Error, Result};
pub use facts::{NoVolumesInUse, Pressure, ReadyCheck, VolumesInUse};
#[cfg(any(feature = "healthz", feature = "systemd"))]
pub use health::HealthChecks;
#[cfg(feature = "healthz")]
pub use healthz::HealthzServer;
pub use heartbeat::HeartbeatClient;
pub use host_network::{DefaultRoute, FixedNetwork, HostNetwork, Interface, SystemNetwork};
pub use hostname::hostname;
pub use informer::{NodeInformer, NodeInformerHandle};
pub use kubelet_core::{NodeRuntime, RuntimeFeatures, RuntimeHandler, RuntimeImage};
pub use lease::{LeaseConfig, LeaseController};
pub use local_node::{LocalNode, LocalNodeBuilder, NodeConfig};
#[cfg(all(feature = "lock", target_os = "linux"))]
pub use lock_file::LockFile;
pub use machine::{HugePages, MachineInfo};
pub use node_heartbeat::{NodeHeartbeat, NodeHeartbeatConfig};
pub use node_ip::{node_host_ips, parse_node_ip};
pub use preflight::{Finding, MissingPermission, PreflightConfig, preflight};
pub use registration::{NodeRegistration, Registered};
pub use reservation::Reservation;
pub use setter::NodeStatusSetter;
pub use status::{NodeStatusConfig, NodeStatusHandle, NodeStatusUpdater};
#[cfg(all(feature = "systemd", target_os = "linux"))]
pub use systemd::SystemdNotifier;
