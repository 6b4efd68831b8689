//! One eviction: which pod, why, and how it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::PodStatusFn;

/// The reason of the status, of the event, and of a rejection under pressure (`eviction.Reason`).
pub const REASON: &str = "Evicted";
/// `DisruptionTarget`
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// `PodReasonTerminationByKubelet`
const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
/// The grace period of a pod that must end at once (`immediateEvictionGracePeriodSeconds`).
pub(crate) const IMMEDIATELY: Duration = Duration::from_secs(1);

/// A pod to evict, and how (`evictPod`).
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The pod.
    pub pod: Arc<Pod>,
    /// What the eviction is counted for, the label of `kubelet_evictions`: a signal, or a limit of local storage.
    pub counted_for: &'static str,
    /// The grace period that replaces the pod's own.
    pub grace_period: Duration,
    /// The message of the status and of the event.
    pub message: String,
    /// The annotations of the event: the starved resource, and which containers use more than they request.
    pub annotations: BTreeMap<String, String>,
    /// Whether the pod's status has the condition `DisruptionTarget`. A pod beyond its own limits has not.
    pub disruption: bool,
}

impl Eviction {
    /// Changes the pod's status to that of an evicted pod.
    pub fn apply(&self, status: &mut PodStatus, now: &Time) {
        status.phase = Some("Failed".to_owned());
        status.reason = Some(REASON.to_owned());
        status.message = Some(self.message.clone());
        if self.disruption {
            update_condition(status, self.condition(), now);
        }
    }

    /// The same for [`KillPod`](kubelet_core::KillPod).
    pub fn status_fn(&self, now: Time) -> PodStatusFn {
        let eviction = self.clone();
        Arc::new(move |status| eviction.apply(status, &now))
    }

    fn condition(&self) -> PodCondition {
        PodCondition {
            type_: DISRUPTION_TARGET.to_owned(),
            observed_generation: self.pod.metadata.generation,
            status: "True".to_owned(),
            reason: Some(TERMINATION_BY_KUBELET.to_owned()),
            message: Some(self.message.clone()),
            ..PodCondition::default()
        }
    }
}

/// Sets a condition; it keeps the time of its last transition if its status stays (`UpdatePodCondition`).
fn update_condition(status: &mut PodStatus, mut condition: PodCondition, now: &Time) {
    let conditions = status.conditions.get_or_insert_default();
    condition.last_transition_time = Some(now.clone());
    match conditions.iter_mut().find(|old| old.type_ == condition.type_) {
        None => conditions.push(condition),
        Some(old) => {
            if old.status == condition.status {
                condition.last_transition_time = old.last_transition_time.take();
            }
            *old = condition;
        }
    }
}
