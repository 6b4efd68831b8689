//! What other parts of an agent tell about its node.

use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{NodeRuntime, RuntimeState};
use tokio::time::timeout;

use crate::error::BoxError;

/// A program with no runtime to tell of.
pub(crate) struct NoRuntime;

#[async_trait]
impl NodeRuntime for NoRuntime {
    fn runtime_type(&self) -> &str {
        "none"
    }

    async fn version(&self) -> Result<String, BoxError> {
        Err("there is no runtime".into())
    }
}

/// Something that a node must have to be `Ready`. Any `Fn() -> Vec<String>` is one.
///
/// # Cancel safety
///
/// A call of [`refresh`](Self::refresh) may be dropped and made again.
#[async_trait]
pub trait ReadyCheck: Send + Sync {
    /// Why not; nothing where all is well. Quick: what was found last.
    fn problems(&self) -> Vec<String>;

    /// What should be known, but keeps no pod from running (`SoftRequirements`).
    fn warning(&self) -> Option<String> {
        None
    }

    /// Looks now. Called before each look at a node that is about to become ready for the first time, up to ten times a
    /// second. The default relies on what was found last.
    async fn refresh(&self) {}
}

impl<F: Fn() -> Vec<String> + Send + Sync> ReadyCheck for F {
    fn problems(&self) -> Vec<String> {
        self()
    }
}

/// How long a runtime may take for its answer before the node says what is known.
const PATIENCE: Duration = Duration::from_secs(10);

/// The runtime and its network are ready, and the PLEG is healthy. A node whose agent was just started waits for the
/// runtime's first answer, rather than to say that there is none.
#[async_trait]
impl ReadyCheck for RuntimeState {
    fn problems(&self) -> Vec<String> {
        let network = self.network_errors().err().map(|error| match error {
            // As the runtime said it, without what a pod that waits is told.
            kubelet_core::Error::NetworkNotReady { message } => message,
            other => other.to_string(),
        });
        self.runtime_problems().into_iter().chain(network).collect()
    }

    async fn refresh(&self) {
        // Without an answer: what is known says so.
        let _ = timeout(PATIENCE, self.ask_now()).await;
    }
}

/// What the node runs out of (the eviction manager). The default runs out of nothing.
pub trait Pressure: Send + Sync {
    /// (`IsUnderMemoryPressure`)
    fn is_under_memory_pressure(&self) -> bool {
        false
    }

    /// (`IsUnderDiskPressure`)
    fn is_under_disk_pressure(&self) -> bool {
        false
    }

    /// (`IsUnderPIDPressure`)
    fn is_under_pid_pressure(&self) -> bool {
        false
    }
}

/// A node that has enough of all.
pub(crate) struct NoPressure;

impl Pressure for NoPressure {}

/// The volumes that are attached to the node and used (the volume manager).
pub trait VolumesInUse: Send + Sync {
    /// Their unique names; `None` until they are known (`ReconcilerStatesHasBeenSynced`, `GetVolumesInUse`).
    fn volumes_in_use(&self) -> Option<Vec<String>>;

    /// The API server shows these: now they may be mounted (`MarkVolumesAsReportedInUse`).
    fn mark_reported(&self, volumes: &[String]) {
        let _ = volumes;
    }
}

/// For an agent that has no volumes which are attached: none are in use, whatever an agent before it used.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVolumesInUse;

impl VolumesInUse for NoVolumesInUse {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}
