//! Facts about the node that other parts of an agent provide.

use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{NodeRuntime, RuntimeState};
use tokio::time::timeout;

use crate::error::BoxError;

/// A runtime for programs that have none.
pub(crate) struct NoRuntime;

#[async_trait]
impl NodeRuntime for NoRuntime {
    fn runtime_type(&self) -> &str {
        "none"
    }

    async fn version(&self) -> Result<String, BoxError> {
        Err("no runtime is configured".into())
    }
}

/// A condition for the node to be `Ready`. Any `Fn() -> Vec<String>` implements it.
///
/// # Cancel safety
///
/// A call of [`refresh`](Self::refresh) may be dropped and made again.
#[async_trait]
pub trait ReadyCheck: Send + Sync {
    /// The problems that keep the node from being ready; empty if there are none. Returns at once, with the
    /// last result.
    fn problems(&self) -> Vec<String>;

    /// A warning to report. It does not make the node `NotReady` (`SoftRequirements`).
    fn warning(&self) -> Option<String> {
        None
    }

    /// Checks now. The status updater calls it before it checks whether a starting node has become ready, up to
    /// ten times a second. The default does nothing.
    async fn refresh(&self) {}
}

impl<F: Fn() -> Vec<String> + Send + Sync> ReadyCheck for F {
    fn problems(&self) -> Vec<String> {
        self()
    }
}

/// How long a refresh waits for the runtime's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Checks that the runtime and its network are ready and that the PLEG is healthy. After a start the agent
/// waits for the runtime's first answer, so that it does not report a runtime that is merely not checked yet as
/// down.
#[async_trait]
impl ReadyCheck for RuntimeState {
    fn problems(&self) -> Vec<String> {
        let network = self.network_errors().err().map(|error| match error {
            // The node reports the runtime's own words. The message for waiting pods is another one.
            kubelet_core::Error::NetworkNotReady { message } => message,
            other => other.to_string(),
        });
        self.runtime_problems().into_iter().chain(network).collect()
    }

    async fn refresh(&self) {
        // Without an answer `problems` reports the last known state.
        let _ = timeout(PATIENCE, self.ask_now()).await;
    }
}
