//! The trait of node status setters.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;

use crate::Result;

/// Fills one part of a Node object, usually of its status. Answers to `nodestatus.Setter`.
///
/// The kubelet's setters are built in. Add your own with
/// [`LocalNodeBuilder::setter`](crate::LocalNodeBuilder::setter); a setter with the [name](Self::name) of a
/// built-in one replaces it.
///
/// # Cancel safety
///
/// A call may be dropped and made again.
#[async_trait]
pub trait NodeStatusSetter: Send + Sync {
    /// The unique name of the setter, for example `addresses`.
    fn name(&self) -> &str;

    /// Fills its part of `node`: the object from the API server, or a new one. Called every 10 s, and for each
    /// attempt to register.
    ///
    /// # Errors
    ///
    /// An error is logged and the other setters still run. What the setter has already filled is reported.
    async fn set(&self, node: &mut Node) -> Result<()>;
}
