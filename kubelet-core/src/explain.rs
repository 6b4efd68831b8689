//! Explains what a pod is doing and what it waits for.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::{PodUid, PodWorkerState};

/// One thing that a pod has passed or waits for. [`KubeletHandle::explain`](crate::KubeletHandle::explain) returns them
/// in order. Instants are on tokio's clock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// No source lists the pod. If it runs, it is ended once every source has reported.
    NotListed {
        /// Sources that have not reported yet: one of them may list it.
        silent_sources: Vec<String>,
    },
    /// This source lists the pod.
    Source {
        /// The source's name, if the pod has the annotation.
        name: Option<String>,
    },
    /// It was rejected and will not run.
    Rejected {
        /// The reason, one word.
        reason: String,
        /// The message.
        message: String,
    },
    /// No pod is synced: the runtime is not ready.
    RuntimeNotReady {
        /// The problem.
        message: String,
    },
    /// Another static pod of the same name has not ended yet.
    WaitsForTurn {
        /// The pod that runs under the name.
        of: PodUid,
    },
    /// It has pending work that its worker has not started.
    Queued,
    /// Its worker waits for a runtime status that is newer than the last sync.
    WaitsForStatus {
        /// When the last sync ended. `None`: any status is new enough.
        newer_than: Option<Instant>,
    },
    /// Its worker is busy.
    Working {
        /// What the worker does: sync the pod, terminate it, or clean up after it.
        state: PodWorkerState,
        /// Since when.
        since: Instant,
    },
    /// It is being terminated.
    Terminating {
        /// The grace period of its containers.
        grace_period: Option<Duration>,
    },
    /// The last sync failed and will be retried.
    RetriesAt {
        /// When.
        at: Instant,
        /// The error.
        error: String,
    },
    /// A container did not start: `CrashLoopBackOff`, `ImagePullBackOff`… It is retried at `until`, if set.
    Container {
        /// The container's name.
        name: String,
        /// The reason, one word.
        reason: String,
        /// The message.
        message: String,
        /// When its back-off ends, if it has one.
        until: Option<Instant>,
    },
    /// A probe of a running container has not succeeded, so the container is not ready or not started.
    Probe {
        /// The container's name.
        container: String,
        /// `readiness` or `startup`.
        probe: &'static str,
        /// Whether the probe failed. Otherwise it has no result yet.
        failed: bool,
    },
    /// Its spec asks for other resources than it was allocated. It keeps running with the allocated ones.
    ResizePending {
        /// `Deferred` until the node has room, or `Infeasible`.
        reason: String,
        /// The message.
        message: String,
    },
    /// Its active deadline ends it at this time.
    ActiveUntil {
        /// The active deadline.
        at: Instant,
    },
    /// It needs nothing now. The next sync is at this time.
    LooksAgainAt {
        /// When.
        at: Instant,
    },
    /// It has ended, and all its resources are released.
    Finished,
}

impl Step {
    /// The label `reason` of `kubelet_pod_deferrals_total` for this step; `None` if the step does not defer the pod.
    pub fn deferral(&self) -> Option<&'static str> {
        match self {
            Step::NotListed { silent_sources } if !silent_sources.is_empty() => Some("sources"),
            Step::WaitsForTurn { .. } => Some("turn"),
            Step::WaitsForStatus { .. } => Some("status"),
            Step::RetriesAt { .. } => Some("retry"),
            Step::RuntimeNotReady { .. } => Some("runtime"),
            Step::Container { until: Some(_), .. } => Some("back-off"),
            Step::ResizePending { reason, .. } if reason == "Deferred" => Some("resize"),
            _ => None,
        }
    }
}

/// Counts a deferral. Called each time a pod starts to wait.
pub(crate) fn count_deferral(reason: &'static str) {
    metrics::counter!("kubelet_pod_deferrals_total", "reason" => reason).increment(1);
}

/// One line for humans, with times relative to now.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = |at: &Instant| at.saturating_duration_since(Instant::now());
        match self {
            Step::NotListed { silent_sources } if silent_sources.is_empty() => {
                write!(f, "no source lists it")
            }
            Step::NotListed { silent_sources } => {
                write!(
                    f,
                    "no source lists it yet; no update from: {}",
                    silent_sources.join(", ")
                )
            }
            Step::Source { name } => write!(f, "listed by {}", name.as_deref().unwrap_or("a source")),
            Step::Rejected { reason, message } => write!(f, "rejected: {reason}: {message}"),
            Step::RuntimeNotReady { message } => write!(f, "the runtime is not ready: {message}"),
            Step::WaitsForTurn { of } => write!(f, "waits until pod {of} with the same name has ended"),
            Step::Queued => write!(f, "queued for its worker"),
            Step::WaitsForStatus { .. } => write!(f, "waits for a newer status from the runtime"),
            Step::Working { state, since } => write!(f, "{state:?} for {:.1?}", since.elapsed()),
            Step::Terminating { grace_period } => {
                write!(f, "terminates within {:?}", grace_period.unwrap_or_default())
            }
            Step::RetriesAt { at, error } => write!(f, "retried in {:.1?}: {error}", until(at)),
            Step::Container {
                name,
                reason,
                message,
                until: ends,
            } => {
                write!(f, "container {name}: {reason}: {message}")?;
                ends.iter()
                    .try_for_each(|at| write!(f, " ({:.1?} left)", until(at)))
            }
            Step::Probe {
                container,
                probe,
                failed,
            } => {
                let how = if *failed { "fails" } else { "has no result yet" };
                write!(f, "container {container}: its {probe} probe {how}")
            }
            Step::ResizePending { reason, message } => write!(f, "resize is {reason}: {message}"),
            Step::ActiveUntil { at } => write!(f, "active deadline in {:.1?}", until(at)),
            Step::LooksAgainAt { at } => write!(f, "synced again in {:.1?}", until(at)),
            Step::Finished => write!(f, "has ended"),
        }
    }
}
