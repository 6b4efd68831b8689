//! What fills a node's status.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use crate::Result;

/// Fills one part of a node's object, mostly of its status. Answers to `nodestatus.Setter`.
///
/// The kubelet's own are there; an embedder adds others, or puts one in the place of the one of the same
/// [name](Self::name), by [`LocalNodeBuilder::setter`](crate::LocalNodeBuilder::setter).
///
/// # Cancel safety
///
/// A call may be dropped and made again.
#[async_trait]
pub trait NodeStatusSetter: Send + Sync {
    /// What it fills: `addresses`. One name, one setter.
    fn name(&self) -> &str;

    /// Fills its part of `node`, which is the node as the API server has it, or a new one. Called each 10 s, and for each
    /// try to register.
    ///
    /// # Errors
    ///
    /// An error is logged and the others go on; what was filled until then is reported.
    async fn set(&self, node: &mut Node) -> Result<()>;
}
