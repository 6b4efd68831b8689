//! When the node's status is sent.

#[cfg(feature = "apiserver")]
mod updater;

use std::sync::Arc;

use tokio::sync::Notify;

#[cfg(feature = "apiserver")]
pub use self::updater::{NodeStatusConfig, NodeStatusUpdater};

/// Requests a status update. Clones are equivalent.
#[derive(Clone, Debug, Default)]
pub struct NodeStatusHandle {
    wanted: Arc<Notify>,
}

impl NodeStatusHandle {
    /// Computes the status now and sends it if it changed, for example when the node shuts down. Returns at
    /// once.
    pub fn sync(&self) {
        self.wanted.notify_one();
    }
}
