//! Collects the steps of one pod from the parts of the agent.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::KubeletHandle;
use crate::active_deadline::active_deadline;
use crate::runtime::ContainerState;
use crate::{Clock, PodExt, PodStatusReporter, PodUid, ProbeResult, ProbeResults, StartFailures, Step};

/// The parts that are asked besides the pod workers.
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

    /// The probes of running containers that have not succeeded.
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

crate::impl_debug!(Explainer);
