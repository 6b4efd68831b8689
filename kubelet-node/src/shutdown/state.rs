//! Whether the node is shutting down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use kubelet_core::{PodAdmitAttributes, PodAdmitHandler, Rejection};

use crate::ReadyCheck;

/// `NodeShutdownNotAdmittedReason`
const NOT_ADMITTED_REASON: &str = "NodeShutdown";
/// `nodeShutdownNotAdmittedMessage`
const NOT_ADMITTED_MESSAGE: &str = "Pod was rejected as the node is shutting down.";

/// Whether the node is shutting down. Clones share the state. It is a [`ReadyCheck`], which makes the node not ready, and a
/// [`PodAdmitHandler`], which rejects new pods.
///
/// Make one before the other parts of an agent, and pass it to the [`ShutdownManager`](super::ShutdownManager), which updates it.
#[derive(Clone, Debug, Default)]
pub struct NodeShutdown {
    is_shutting_down: Arc<AtomicBool>,
}

impl NodeShutdown {
    /// A node that is not shutting down.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the node is shutting down (`ShutdownStatus`).
    pub fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, is_shutting_down: bool) {
        self.is_shutting_down.store(is_shutting_down, Ordering::Relaxed);
    }
}

#[async_trait]
impl ReadyCheck for NodeShutdown {
    fn problems(&self) -> Vec<String> {
        match self.is_shutting_down() {
            true => vec!["node is shutting down".to_owned()],
            false => Vec::new(),
        }
    }
}

#[async_trait]
impl PodAdmitHandler for NodeShutdown {
    async fn admit(&self, _: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        match self.is_shutting_down() {
            true => Err(Rejection::new(NOT_ADMITTED_REASON, NOT_ADMITTED_MESSAGE)),
            false => Ok(()),
        }
    }
}
