//! The node that the agent runs on, as its API object.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use crate::Result;

/// Gets the node: its labels, taints, allocatable resources and UID, for admission and mirror pods. Answers to the
/// kubelet's `getNodeAnyWay` and `GetCachedNode`.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait NodeGetter: Send + Sync {
    /// The node from a cache. Fast.
    async fn node(&self) -> Result<Arc<Node>>;

    /// The current node. Admission calls it when the cached node would reject a pod that may fit with newer labels. By
    /// default, the cached node.
    async fn fresh_node(&self) -> Result<Arc<Node>> {
        self.node().await
    }

    /// Waits until the node is registered with the API server. Then it can own mirror pods. By default, calls
    /// [`fresh_node`](Self::fresh_node) once a second until it succeeds.
    async fn registered(&self) {
        while self.fresh_node().await.is_err() {
            tokio::time::sleep(REGISTRATION_POLL).await;
        }
    }
}

const REGISTRATION_POLL: Duration = Duration::from_secs(1);

/// A node that never changes: for an agent without an API server, and for tests.
#[derive(Clone, Debug, Default)]
pub struct FixedNode {
    node: Arc<Node>,
}

impl FixedNode {
    /// This node.
    pub fn new(node: Arc<Node>) -> Self {
        Self { node }
    }
}

#[async_trait]
impl NodeGetter for FixedNode {
    async fn node(&self) -> Result<Arc<Node>> {
        Ok(self.node.clone())
    }
}
