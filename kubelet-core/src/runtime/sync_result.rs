//! The result of a pod's sync, per container.

use tokio::time::Instant;

/// An action of a sync (`container.SyncAction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncAction {
    /// Start a regular container.
    StartContainer,
    /// Start an init container.
    InitContainer,
    /// Kill a container.
    KillContainer,
    /// Create the sandbox.
    CreatePodSandbox,
    /// Read a sandbox's config.
    ConfigPodSandbox,
    /// Kill a sandbox.
    KillPodSandbox,
    /// Kill the pod before it is created again.
    KillPod,
    /// Resize running containers.
    ResizePodInPlace,
}

/// One action on one container or sandbox (`container.SyncResult`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResult {
    /// The action.
    pub action: SyncAction,
    /// The target: a container's name, or the pod's name for a sandbox.
    pub target: String,
    /// The failure, if it failed.
    pub failure: Option<SyncFailure>,
}

/// Why an action failed: the content of `state.waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The reason, e.g. `CrashLoopBackOff`, `ErrImagePull`, `RunContainerError`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// When to retry, if this is a back-off; on tokio's clock.
    pub back_off_until: Option<Instant>,
}

/// All actions of one `sync_pod` (`container.PodSyncResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSyncResult {
    /// The actions, in order.
    pub results: Vec<SyncResult>,
    /// A failure of the pod as a whole.
    pub error: Option<String>,
}

impl PodSyncResult {
    /// Adds a successful action.
    pub fn succeeded(&mut self, action: SyncAction, target: impl Into<String>) {
        self.results.push(SyncResult {
            action,
            target: target.into(),
            failure: None,
        });
    }

    /// Adds a failed action.
    pub fn failed(&mut self, action: SyncAction, target: impl Into<String>, failure: SyncFailure) {
        self.results.push(SyncResult {
            action,
            target: target.into(),
            failure: Some(failure),
        });
    }

    /// Whether everything succeeded.
    pub fn is_ok(&self) -> bool {
        self.error.is_none() && self.results.iter().all(|result| result.failure.is_none())
    }

    /// All failures in one line; `None` if there is none.
    pub fn summary(&self) -> Option<String> {
        let failures = self.results.iter().filter_map(|result| {
            let failure = result.failure.as_ref()?;
            Some(format!(
                "failed to {:?} for {:?} with {}: {:?}",
                result.action, result.target, failure.reason, failure.message
            ))
        });
        let all: Vec<String> = self.error.clone().into_iter().chain(failures).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The end of the earliest back-off among the failures (`MinBackoffExpiration`).
    pub fn back_off_until(&self) -> Option<Instant> {
        self.results
            .iter()
            .filter_map(|result| result.failure.as_ref()?.back_off_until)
            .min()
    }
}
