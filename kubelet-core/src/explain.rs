//! Why a pod is where it is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use crate::active_deadline::active_deadline;
use crate::runtime::ContainerState;
use crate::start_failures::StartFailures;
use crate::{
    Clock, KubeletHandle, PodExt, PodStatusReporter, PodUid, PodWorkerState, ProbeResult, ProbeResults,
};

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

/// What is asked beside the workers.
#[derive(Clone)]
pub(crate) struct Explainer {
    pub(crate) statuses: Arc<dyn PodStatusReporter>,
    pub(crate) start_failures: StartFailures,
    pub(crate) probes: Arc<dyn ProbeResults>,
    pub(crate) clock: Clock,
}

impl Explainer {
    pub(crate) fn explain(&self, uid: &PodUid, kubelet: &KubeletHandle) -> Vec<Step> {
        let pod = kubelet.pods().pod(uid);
        let mut steps = vec![match &pod {
            Some(pod) => Step::Source {
                name: pod.source().map(str::to_owned),
            },
            None => Step::NotListed {
                silent_sources: kubelet.sources().silent(),
            },
        }];
        let in_worker = kubelet.workers().explain(uid);
        if in_worker.is_empty() {
            steps.extend(self.rejection(uid));
        }
        if let Err(error) = kubelet.runtime_state().runtime_errors() {
            let message = error.to_string();
            steps.push(Step::RuntimeNotReady { message });
        }
        let settled = in_worker.contains(&Step::Finished);
        steps.extend(in_worker);
        if let Some(pod) = pod.filter(|_| !settled) {
            steps.extend(self.containers(&pod));
            steps.extend(self.unready(&pod, kubelet));
            steps.extend(self.pending_resize(uid));
            steps.extend(self.active_until(&pod));
        }
        steps
    }

    fn rejection(&self, uid: &PodUid) -> Option<Step> {
        let status = self.statuses.pod_status(uid)?;
        let failed = status.phase.as_deref() == Some("Failed");
        failed.then(|| Step::Rejected {
            reason: status.reason.clone().unwrap_or_default(),
            message: status.message.clone().unwrap_or_default(),
        })
    }

    fn containers(&self, pod: &Pod) -> Vec<Step> {
        let failures = self.start_failures.of_pod(&pod.uid());
        let each = failures.iter().flat_map(|of_pod| of_pod.iter());
        each.map(|(name, failure)| Step::Container {
            name: name.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            until: failure.back_off_until,
        })
        .collect()
    }

    /// The probes of containers that run which have not succeeded.
    fn unready(&self, pod: &Pod, kubelet: &KubeletHandle) -> Vec<Step> {
        let Ok(status) = kubelet.cache().get(&pod.uid()) else {
            return Vec::new();
        };
        let mut steps = Vec::new();
        for container in pod.all_containers() {
            let Some(running) = status
                .container(&container.name)
                .filter(|status| status.state == ContainerState::Running)
            else {
                continue;
            };
            let kinds = [
                (
                    "startup",
                    container.startup_probe.is_some(),
                    self.probes.startup(&running.id),
                ),
                (
                    "readiness",
                    container.readiness_probe.is_some(),
                    self.probes.readiness(&running.id),
                ),
            ];
            let unready = kinds
                .into_iter()
                .filter(|(_, has, result)| *has && *result != Some(ProbeResult::Success));
            steps.extend(unready.map(|(probe, _, result)| Step::Probe {
                container: container.name.clone(),
                probe,
                failed: result == Some(ProbeResult::Failure),
            }));
        }
        steps
    }

    fn pending_resize(&self, uid: &PodUid) -> Option<Step> {
        let conditions = self.statuses.pod_resize_conditions(uid);
        let pending = conditions
            .into_iter()
            .find(|condition| condition.type_ == "PodResizePending")?;
        Some(Step::ResizePending {
            reason: pending.reason.unwrap_or_default(),
            message: pending.message.unwrap_or_default(),
        })
    }

    fn active_until(&self, pod: &Pod) -> Option<Step> {
        let deadline = active_deadline(pod, self.statuses.pod_status(&pod.uid()).as_deref())?;
        let left = deadline.duration_since(self.clock.now());
        let at = Instant::now().checked_add(left.try_into().unwrap_or_default())?;
        Some(Step::ActiveUntil { at })
    }
}

impl fmt::Debug for Explainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explainer").finish_non_exhaustive()
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
