//! The node that the agent runs on, as its API object.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use crate::Result;

/// Tells of the node: its labels, taints, what it has to give, and its UID. Admission and mirror pods ask for it.
/// Answers to the kubelet's `getNodeAnyWay` and `GetCachedNode`.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait NodeGetter: Send + Sync {
    /// The node as it was last seen; quick.
    async fn node(&self) -> Result<Arc<Node>>;

    /// The node as it is now: asked when what was last seen would turn a pod away that may only fit by newer
    /// labels. The default has nobody to ask.
    async fn fresh_node(&self) -> Result<Arc<Node>> {
        self.node().await
    }
}

/// A node that does not change: for an agent without an API server, and for tests.
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
