//! [`NodeHeartbeat`]: watch, registration, status and lease of a node together.

use std::sync::Arc;
use std::time::Duration;

use kube_client::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    HeartbeatClient, LeaseConfig, LeaseController, LocalNode, NodeInformer, NodeInformerHandle,
    NodeRegistration, NodeStatusConfig, NodeStatusHandle, NodeStatusUpdater,
};

/// Settings of a [`NodeHeartbeat`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHeartbeatConfig {
    /// `registerNode`, true by default: create the Node object or, if it exists, update the fields that belong
    /// to the kubelet. If false, an administrator has to create it.
    pub register_node: bool,
    /// How often the status is sent.
    pub status: NodeStatusConfig,
    /// How the lease is renewed.
    pub lease: LeaseConfig,
}

impl Default for NodeHeartbeatConfig {
    fn default() -> Self {
        Self {
            register_node: true,
            status: NodeStatusConfig::default(),
            lease: LeaseConfig::default(),
        }
    }
}

impl NodeHeartbeatConfig {
    /// How long to wait for the answer to a heartbeat: at most until the next one is due, and at most as long
    /// as the lease lasts.
    pub fn timeout(&self) -> Duration {
        let lease = Duration::from_secs(self.lease.duration_seconds.into());
        self.status.update_frequency.min(lease)
    }
}

/// Watches and registers the node, sends its status and renews its lease. It combines [`NodeInformer`],
/// [`NodeRegistration`], [`NodeStatusUpdater`] and [`LeaseController`] as the kubelet does.
///
/// ```
/// use std::sync::Arc;
///
/// use k8s_openapi::api::coordination::v1::Lease;
/// use kubelet_node::{
///     FixedNetwork, HeartbeatClient, LocalNode, MachineInfo, NodeConfig, NodeHeartbeat, NodeHeartbeatConfig,
/// };
/// use kubelet_testing::{ApiServer, User, eventually};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let server = ApiServer::new();
/// let client = || server.client_as(User::node("node-1"));
/// let mut machine = MachineInfo::new(2, 4 << 30);
/// machine.ephemeral_storage = Some(20 << 30);
/// let local = LocalNode::builder(NodeConfig::new("node-1"), machine);
/// let local = Arc::new(local.network(FixedNetwork::new(["10.0.0.7".parse().unwrap()])).build());
///
/// let config = NodeHeartbeatConfig::default();
/// // With an `ApiServerAccess`: `access.connections().heartbeats(config.timeout())`.
/// let beats = HeartbeatClient::new(client()).with_timeout(config.timeout());
/// let heartbeat = NodeHeartbeat::new(client(), beats, local, config);
/// let (informer, shutdown) = (heartbeat.informer(), CancellationToken::new());
/// let running = tokio::spawn(heartbeat.run(shutdown.clone()));
///
/// informer.synced().await;
/// let lease = || server.get::<Lease>("kube-node-lease", "node-1").unwrap();
/// let lease = eventually!(lease(), |lease| lease.is_some()).unwrap();
/// assert_eq!(lease.metadata.owner_references.unwrap()[0].name, "node-1");
/// shutdown.cancel();
/// running.await.unwrap();
/// # }
/// ```
pub struct NodeHeartbeat {
    informer: NodeInformer,
    status: NodeStatusUpdater,
    lease: LeaseController,
}

impl NodeHeartbeat {
    /// The heartbeat of the node `local`. `client` is for the watch and the registration. `beats` is for status
    /// and lease; it needs connections of its own, so that other requests do not delay it.
    pub fn new(
        client: Client,
        beats: HeartbeatClient,
        local: Arc<LocalNode>,
        config: NodeHeartbeatConfig,
    ) -> Self {
        let informer = NodeInformer::new(client.clone(), local.name()).with_local_node(local.clone());
        let lease = LeaseController::with_config(beats.clone(), local.name(), config.lease);
        let mut status =
            NodeStatusUpdater::new(local.clone(), informer.handle(), beats).with_config(config.status);
        if config.register_node {
            status = status.with_registration(NodeRegistration::new(client, local));
        }
        Self {
            informer,
            status,
            lease,
        }
    }

    /// The node, for admission, for mirror pods, and for the source of pods, which waits until the node has
    /// synced.
    pub fn informer(&self) -> NodeInformerHandle {
        self.informer.handle()
    }

    /// Requests that the status is sent now, e.g. when the node shuts down.
    pub fn status(&self) -> NodeStatusHandle {
        self.status.handle()
    }

    /// Runs until `shutdown`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running requests.
    pub async fn run(self, shutdown: CancellationToken) {
        let token = || shutdown.clone();
        tokio::join!(
            self.informer.run(token()),
            self.status.run(token()),
            self.lease.run(token())
        );
    }
}

kubelet_core::impl_debug!(NodeHeartbeat: lease);
