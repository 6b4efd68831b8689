//! The built agent.

use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::handle::AgentHandle;
use crate::tasks::Tasks;

/// A whole node, ready to run. Answers to the kubelet's `RunKubelet`.
///
/// [`NodeAgent::builder`] makes one. Several agents can run in one process.
pub struct NodeAgent {
    pub(crate) handle: AgentHandle,
    pub(crate) tasks: Tasks,
}

impl NodeAgent {
    /// A handle to query the agent and to end its pods.
    pub fn handle(&self) -> AgentHandle {
        self.handle.clone()
    }

    /// Runs the agent until `shutdown`, or until one of its parts fails. The containers stay running, and the next agent takes
    /// them over; to end them, call [`AgentHandle::end_pods`] first. All tasks have ended when it returns. The access to the
    /// cluster ends last, after the other parts have sent their last requests.
    ///
    /// # Errors
    ///
    /// The error of the part that failed first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts all its tasks. Only statuses and events that were not sent yet are lost.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        self.tasks.run(shutdown).await
    }
}

kubelet_core::impl_debug!(NodeAgent: handle);
