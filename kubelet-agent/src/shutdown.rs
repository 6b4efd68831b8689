//! The room of graceful node shutdown: the host waits until its pods have ended.

use std::sync::Arc;

use kubelet_core::PodAdmitHandler;
#[cfg(feature = "apiserver")]
use kubelet_node::LocalNodeBuilder;

use crate::context::{Built, Context};
use crate::tasks::Tasks;
use crate::{Result, Settings};

/// What delays the shutdown of the host. It is made before the node and the pods.
#[derive(Default)]
pub(crate) struct ShutdownRoom {}

impl ShutdownRoom {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let _ = settings;
        Ok(Self::default())
    }

    /// The node is not ready while the host shuts down.
    #[cfg(feature = "apiserver")]
    pub(crate) fn ready_check(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        node
    }

    /// Rejects pods while the host shuts down.
    pub(crate) fn admission(&self) -> Option<Arc<dyn PodAdmitHandler>> {
        None
    }

    /// Starts to wait for the shutdown of the host.
    pub(crate) async fn start(self, context: &Context, built: &Built, tasks: &mut Tasks) -> Result<()> {
        let _ = (context, built, tasks);
        Ok(())
    }
}
