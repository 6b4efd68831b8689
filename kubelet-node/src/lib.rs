//! The node of a kubelet without its pods: registration, status, lease and certificates, as kubelet v1.36 does
//! them. It needs no container runtime.
//!
//! | type                     | purpose                                                        | feature        |
//! |--------------------------|----------------------------------------------------------------|----------------|
//! | [`NodeInformer`]         | watches the Node object and shares it with the other parts     | `apiserver`    |
//! | [`NodeStatusUpdater`]    | registers the node ([`NodeRegistration`]) and sends its status | `apiserver`    |
//! | [`LeaseController`]      | renews the node's lease                                        | `apiserver`    |
//! | [`NodeHeartbeat`]        | runs these three together, as the kubelet does                 | `apiserver`    |
//! | [`certificate`]          | TLS bootstrap and certificate rotation                         | `certificates` |
//! | [`shutdown`]             | the order in which pods end when the host shuts down           |                |
//! | `shutdown::Logind`       | the shutdowns that systemd reports                             | `systemd`      |
//! | `host`                   | the kernel's settings, iptables chains, cgroups of processes   |                |
//!
//! For programs that run as an agent of a host there are also `HealthzServer` (feature `healthz`),
//! `SystemdNotifier` and `LockFile`. These two and `host` are for Linux. Without features the crate needs neither an HTTP library nor
//! TLS.
//!
//! The status comes from a [`LocalNode`]. You give it the settings ([`NodeConfig`]), the machine
//! ([`MachineInfo`]), the host's addresses ([`HostNetwork`]), the runtime ([`NodeRuntime`]), the conditions for
//! readiness ([`ReadyCheck`]) and the resources under pressure ([`Pressure`]). You can read the machine from
//! the host or make one up. Each part of the status is filled by a [`NodeStatusSetter`]; you can replace
//! setters and add your own. [`preflight`](preflight()) reports why a node cannot join its cluster, and how to
//! fix it.
//!
//! # Example: a node that is ready, in virtual time
//!
//! The API server in the example is the one in memory of `kubelet-testing` (feature `api-server`); virtual time
//! needs tokio's feature `test-util`. For a real API server pass any `kube_client::Client`.
//! [`certificate::ApiServerAccess`] makes one from a node's kubeconfig and keeps its certificate fresh. The
//! example has no [`ReadyCheck`], so the node is ready at once.
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
//!     assert_eq!(status.allocatable.unwrap_or_default()["memory"].0, "3996Mi"); // 100 MiB are reserved for eviction
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
//! An idle node makes one request every 10 s (the lease) and one every 5 minutes (the status), and holds one
//! watch. The Node authorizer and `NodeRestriction` allow a kubelet all requests of this crate.
//!
//! # Time, randomness, tasks
//!
//! Every delay uses `tokio::time`. Wall-clock time comes from a [`Clock`](kubelet_core::Clock), randomness from
//! a [`Jitter`](kubelet_core::Jitter). The engines spawn no tasks: each is one future, which you spawn or join.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "apiserver"),
    allow(dead_code, reason = "the parts that talk to an API server use it")
)]

#[cfg(feature = "certificates")]
pub mod certificate;
mod error;
mod facts;
#[cfg(feature = "healthz")]
mod healthz;
#[cfg(feature = "apiserver")]
mod heartbeat;
#[cfg(target_os = "linux")]
pub mod host;
mod host_network;
mod hostname;
mod informer;
#[cfg(feature = "apiserver")]
mod lease;
mod local_node;
#[cfg(target_os = "linux")]
mod lock_file;
mod machine;
#[cfg(feature = "apiserver")]
mod node_heartbeat;
mod node_ip;
#[cfg(feature = "apiserver")]
mod node_patch;
#[cfg(feature = "apiserver")]
mod preflight;
#[cfg(feature = "apiserver")]
mod registration;
mod reservation;
mod runtime_version;
mod setter;
mod setters;
pub mod shutdown;
mod startup_latency;
mod status;
#[cfg(target_os = "linux")]
mod systemd;

pub use error::{BoxError, Error, Result};
pub use facts::ReadyCheck;
#[cfg(feature = "healthz")]
pub use healthz::HealthzServer;
#[cfg(feature = "apiserver")]
pub use heartbeat::HeartbeatClient;
pub use host_network::{DefaultRoute, FixedNetwork, HostNetwork, Interface, SystemNetwork};
pub use hostname::hostname;
#[cfg(feature = "apiserver")]
pub use informer::NodeInformer;
pub use informer::NodeInformerHandle;
pub use kubelet_core::{HealthChecks, NodeRuntime, Pressure, RuntimeFeatures, RuntimeHandler, RuntimeImage};
pub use kubelet_core::{NoVolumesInUse, VolumesInUse};
#[cfg(feature = "apiserver")]
pub use lease::{LeaseConfig, LeaseController};
pub use local_node::{LocalNode, LocalNodeBuilder, NodeConfig};
#[cfg(target_os = "linux")]
pub use lock_file::LockFile;
pub use machine::{HugePages, MachineInfo};
#[cfg(feature = "apiserver")]
pub use node_heartbeat::{NodeHeartbeat, NodeHeartbeatConfig};
pub use node_ip::{node_host_ips, parse_node_ip};
#[cfg(feature = "apiserver")]
pub use preflight::{Finding, MissingPermission, PreflightConfig, preflight};
#[cfg(feature = "apiserver")]
pub use registration::{NodeRegistration, Registered};
pub use reservation::Reservation;
pub use setter::NodeStatusSetter;
pub use status::NodeStatusHandle;
#[cfg(feature = "apiserver")]
pub use status::{NodeStatusConfig, NodeStatusUpdater};
#[cfg(target_os = "linux")]
pub use systemd::SystemdNotifier;
