//! What is started is written down first.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::{ContainerId, Result};

/// A container that is about to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStart {
    /// Its name in the pod's spec.
    pub name: String,
    /// Its id: it was made already, and has not run yet.
    pub id: ContainerId,
    /// How often one of its name was started before.
    pub attempt: u32,
}

/// Told by a runtime of each container before it is started, so that one that must not run twice does not, whatever
/// becomes of the agent, the runtime or the host.
#[async_trait]
pub trait StartRecord: Send + Sync {
    /// The container is about to be started. After `Ok` that is known for good: if the runtime has nothing of the
    /// container later, it counts as started and lost.
    ///
    /// # Errors
    ///
    /// The start cannot be recorded: the container is not to be started now.
    ///
    /// # Cancel safety
    ///
    /// May be dropped; then the container is not started, and may count as if it were.
    async fn about_to_start(&self, pod: &Pod, start: &ContainerStart) -> Result<()>;
}
