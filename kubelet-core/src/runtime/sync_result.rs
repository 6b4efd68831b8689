//! What came of a pod's sync, container by container.

use tokio::time::Instant;

/// What was tried (`container.SyncAction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncAction {
    /// Start a regular container.
    StartContainer,
    /// Start an init container.
    InitContainer,
    /// Kill a container.
    KillContainer,
    /// Make the sandbox.
    CreatePodSandbox,
    /// Read a sandbox's config.
    ConfigPodSandbox,
    /// Kill a sandbox.
    KillPodSandbox,
    /// Kill the pod before it is made anew.
    KillPod,
    /// Give running containers other resources.
    ResizePodInPlace,
}

/// One thing that was tried on one container or sandbox (`container.SyncResult`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResult {
    /// What was tried.
    pub action: SyncAction,
    /// On which: a container's name, or the pod's for a sandbox.
    pub target: String,
    /// How it failed, if it did.
    pub failure: Option<SyncFailure>,
}

/// Why it failed: what `state.waiting` will show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// One word, e.g. `CrashLoopBackOff`, `ErrImagePull`, `RunContainerError`.
    pub reason: String,
    /// A sentence for humans.
    pub message: String,
    /// When it is worth trying again, if this is a back-off; on tokio's clock.
    pub back_off_until: Option<Instant>,
}

/// All that one `sync_pod` did (`container.PodSyncResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSyncResult {
    /// Each action, in order.
    pub results: Vec<SyncResult>,
    /// What failed beside them, about the pod as a whole.
    pub error: Option<String>,
}

impl PodSyncResult {
    /// Records an action that went well.
    pub fn succeeded(&mut self, action: SyncAction, target: impl Into<String>) {
        self.results.push(SyncResult {
            action,
            target: target.into(),
            failure: None,
        });
    }

    /// Records an action that failed.
    pub fn failed(&mut self, action: SyncAction, target: impl Into<String>, failure: SyncFailure) {
        self.results.push(SyncResult {
            action,
            target: target.into(),
            failure: Some(failure),
        });
    }

    /// Whether everything went well.
    pub fn is_ok(&self) -> bool {
        self.error.is_none() && self.results.iter().all(|result| result.failure.is_none())
    }

    /// All that failed, in one line; `None` where nothing did.
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

    /// When the first of the back-offs among the failures ends (`MinBackoffExpiration`).
    pub fn back_off_until(&self) -> Option<Instant> {
        self.results
            .iter()
            .filter_map(|result| result.failure.as_ref()?.back_off_until)
            .min()
    }
}
