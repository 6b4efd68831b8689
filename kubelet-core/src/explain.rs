//! Why a pod is where it is.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::{PodUid, PodWorkerState};

/// One thing that a pod waits for, or where it is; [`KubeletHandle::explain`](crate::KubeletHandle::explain) gives
/// them in the order in which they are passed. Instants are on tokio's clock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// No source lists it. If it runs, it is ended once all sources were heard.
    NotListed {
        /// Sources that were not heard yet: one of them may list it.
        silent_sources: Vec<String>,
    },
    /// This source lists it.
    Source {
        /// The source's name, where the pod bears it.
        name: Option<String>,
    },
    /// It was turned away and will not run.
    Rejected {
        /// One word.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// Nothing is synced: the runtime is not ready.
    RuntimeNotReady {
        /// What is the matter.
        message: String,
    },
    /// A static pod of its name has not ended yet.
    WaitsForTurn {
        /// The pod that runs under the name.
        of: PodUid,
    },
    /// It has work, and its worker has not begun.
    Queued,
    /// Its worker waits for a status of the runtime that is newer than the last sync.
    WaitsForStatus {
        /// When the last sync ended; `None`: any status will do.
        newer_than: Option<Instant>,
    },
    /// Its worker is at work.
    Working {
        /// What it does: bring the pod up, end it, clean up after it.
        state: PodWorkerState,
        /// Since when.
        since: Instant,
    },
    /// It ends.
    Terminating {
        /// How long its containers are given.
        grace_period: Option<Duration>,
    },
    /// The last try failed, and the next one is then.
    RetriesAt {
        /// When.
        at: Instant,
        /// What went wrong.
        error: String,
    },
    /// A container did not start, and waits if `until` says so: `CrashLoopBackOff`, `ImagePullBackOff`…
    Container {
        /// Its name.
        name: String,
        /// One word.
        reason: String,
        /// A sentence.
        message: String,
        /// When its back-off ends, if it is one.
        until: Option<Instant>,
    },
    /// A probe of a container that runs has not succeeded: it is not ready, or not started.
    Probe {
        /// The container's name.
        container: String,
        /// `readiness` or `startup`.
        probe: &'static str,
        /// Whether it failed; else it was not measured yet.
        failed: bool,
    },
    /// It asks for other resources than it was allocated, and runs on with these.
    ResizePending {
        /// `Deferred` until there is room, or `Infeasible`.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// It is ended then, whatever it does.
    ActiveUntil {
        /// Its active deadline.
        at: Instant,
    },
    /// All is as it should be; it is looked at again then.
    LooksAgainAt {
        /// When.
        at: Instant,
    },
    /// It has ended, and all that it held is given back.
    Finished,
}

impl Step {
    /// What defers the pod, as the label `reason` of `kubelet_pod_deferrals_total` has it; `None` where nothing does.
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

/// A pod was deferred: counted each time it begins to wait.
pub(crate) fn count_deferral(reason: &'static str) {
    metrics::counter!("kubelet_pod_deferrals_total", "reason" => reason).increment(1);
}

/// One line for humans; times from now on.
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
                    "no source lists it yet; not heard: {}",
                    silent_sources.join(", ")
                )
            }
            Step::Source { name } => write!(f, "listed by {}", name.as_deref().unwrap_or("a source")),
            Step::Rejected { reason, message } => write!(f, "rejected: {reason}: {message}"),
            Step::RuntimeNotReady { message } => write!(f, "the runtime is not ready: {message}"),
            Step::WaitsForTurn { of } => write!(f, "waits until pod {of} of its name has ended"),
            Step::Queued => write!(f, "has work and waits for its worker"),
            Step::WaitsForStatus { .. } => write!(f, "waits for a newer status from the runtime"),
            Step::Working { state, since } => write!(f, "in {state:?} for {:.1?}", since.elapsed()),
            Step::Terminating { grace_period } => {
                write!(f, "ends within {:?}", grace_period.unwrap_or_default())
            }
            Step::RetriesAt { at, error } => write!(f, "tried again in {:.1?}: {error}", until(at)),
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
                let how = if *failed { "fails" } else { "was not measured yet" };
                write!(f, "container {container}: its {probe} probe {how}")
            }
            Step::ResizePending { reason, message } => write!(f, "its resize is {reason}: {message}"),
            Step::ActiveUntil { at } => write!(f, "may be active for {:.1?} more", until(at)),
            Step::LooksAgainAt { at } => write!(f, "looked at again in {:.1?}", until(at)),
            Step::Finished => write!(f, "has ended"),
        }
    }
}
