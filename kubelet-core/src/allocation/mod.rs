//! Allocation: which resources of the node each pod holds, and whether that may change while it runs.
//!
//! A pod keeps the resources that it was admitted with. When its spec requests other CPU or memory, that is a *resize
//! in place*. It is checked against the node's free resources. If it fits, it is allocated and the runtime applies it.
//! If the node has no room now, it is *deferred*: it is retried when resources are freed, and every 3 min. If it is
//! impossible, it is *infeasible* until the spec changes again. Answers to `pkg/kubelet/allocation`.

mod events;
mod feasible;
mod pending;
mod requested;
mod resources;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::pending::PendingResizes;
use crate::admission::{Operation, held_by, pod_requests};
use crate::explain::count_deferral;
use crate::{
    Admission, Event, EventRecorder, EventType, PodAdmitAttributes, PodExt, PodManager, PodStatusReporter,
    PodUid, Rejection, Runtime,
};

pub(crate) use self::events::resize_message;
pub(crate) use self::requested::record_resize_operations;
pub(crate) use self::resources::Allocation;
pub use self::resources::InPlaceResize;
pub use self::state::AllocationState;

/// The node will never have room, or does not support the resize (`PodReasonInfeasible`).
const INFEASIBLE: &str = "Infeasible";

/// `initialRetryDelay`
const INITIAL_RETRY_DELAY: Duration = Duration::from_secs(30);
/// `retryDelay`
const RETRY_DELAY: Duration = Duration::from_secs(3 * 60);

/// Why pending resizes are retried: the label `retry_trigger` of `kubelet_pod_deferred_accepted_resizes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetryTrigger {
    /// A pod was resized to fewer resources.
    PodResized,
    /// The spec of a pod changed.
    PodUpdated,
    /// Pods were added.
    PodsAdded,
    /// Pods were removed.
    PodsRemoved,
    /// A pod has ended.
    PodTerminated,
    /// Time has passed.
    Periodic,
}

impl RetryTrigger {
    fn as_str(self) -> &'static str {
        match self {
            Self::PodResized => "pod_resized",
            Self::PodUpdated => "pod_updated",
            Self::PodsAdded => "pods_added",
            Self::PodsRemoved => "pods_removed",
            Self::PodTerminated => "pod_terminated",
            Self::Periodic => "periodic_retry",
        }
    }
}

/// Admits pods and decides on resizes. Only the sync loop calls it; other parts use the [state](Self::state). Answers
/// to the kubelet's `allocation.Manager`.
pub struct AllocationManager {
    state: AllocationState,
    runtime: Arc<dyn Runtime>,
    admission: Admission,
    statuses: Arc<dyn PodStatusReporter>,
    recorder: Arc<dyn EventRecorder>,
    pods: PodManager,
    pending: Mutex<PendingResizes>,
    retry_at: Mutex<Instant>,
    /// The pods that held resources when resizes were last refused.
    holders: Mutex<Vec<PodUid>>,
}

/// The decision on a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// The pod was allocated what it requests.
    Unchanged,
    Allocated,
    Deferred,
    Infeasible,
}

impl AllocationManager {
    /// Asks `admission` about new pods and resizes, and `runtime` about resizes. Reports decisions to `statuses` and
    /// `recorder`. `pods` are the desired ones.
    pub fn new(
        state: AllocationState,
        runtime: Arc<dyn Runtime>,
        admission: Admission,
        statuses: Arc<dyn PodStatusReporter>,
        recorder: Arc<dyn EventRecorder>,
        pods: PodManager,
    ) -> Self {
        Self {
            state,
            runtime,
            admission,
            statuses,
            recorder,
            pods,
            pending: Mutex::default(),
            retry_at: Mutex::new(Instant::now() + INITIAL_RETRY_DELAY),
            holders: Mutex::default(),
        }
    }

    /// The allocations.
    pub fn state(&self) -> &AllocationState {
        &self.state
    }

    /// Whether there are no admission handlers.
    pub(crate) fn admits_all(&self) -> bool {
        self.admission.is_empty()
    }

    /// Admits the pod beside these others, with its recorded allocation if there is one, or else with the resources of
    /// its spec (`AddPod`). Returns the pod with its allocation.
    ///
    /// # Errors
    ///
    /// Why the pod is rejected.
    ///
    /// # Cancel safety
    ///
    /// Nothing is allocated before the pod is admitted.
    pub async fn add_pod(&self, pod: &Arc<Pod>, others: &[Arc<Pod>]) -> Result<Arc<Pod>, Rejection> {
        let pod = self.state.update_pod_from_allocation(pod);
        let attributes = PodAdmitAttributes::new(&pod, others);
        self.admission.admit(&attributes).await?;
        self.state.set_allocated_resources(&pod);
        Ok(pod)
    }

    /// Adds a resize of the pod to the pending ones (`PushPendingResize`).
    pub fn push_pending_resize(&self, uid: &PodUid) {
        let order = |uid: &PodUid| {
            let pod = self.pods.pod(uid)?;
            let increases = increases_requests(&self.state.update_pod_from_allocation(&pod), &pod);
            Some(pending::Order::of(
                &pod,
                increases,
                &self.statuses.pod_resize_conditions(uid),
            ))
        };
        self.pending.lock().push(uid, order);
    }

    /// Whether a resize is pending (`HasPendingResizes`).
    pub fn has_pending_resizes(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// When pending resizes are retried, if nothing triggers that earlier.
    pub fn next_retry(&self) -> Option<Instant> {
        self.has_pending_resizes().then(|| *self.retry_at.lock())
    }

    /// A source has not sent its pods yet, so it is unknown which other pods hold resources.
    pub(crate) fn retry_when_sources_are_ready(&self) {
        *self.retry_at.lock() = Instant::now() + INITIAL_RETRY_DELAY;
    }

    /// Decides the pending resizes in order (`RetryPendingResizes`). `active` are the pods that hold resources, with
    /// their allocations. Returns the pods to sync: those with a new allocation or a new resize condition.
    ///
    /// # Cancel safety
    ///
    /// Decisions that were made are kept; the other resizes stay pending.
    pub async fn retry_pending_resizes(
        &self,
        trigger: RetryTrigger,
        active: impl Fn() -> Vec<Arc<Pod>>,
    ) -> Vec<Arc<Pod>> {
        *self.retry_at.lock() = Instant::now() + RETRY_DELAY;
        let waiting = self.pending.lock().uids();
        let mut to_sync = Vec::new();
        for uid in waiting {
            let pod = self.pods.pod(&uid);
            // The pod is gone, and its resize with it.
            let Some(pod) = pod.filter(|pod| !pod.is_deleting() && !pod.is_terminal_phase()) else {
                self.pending.lock().remove(&uid);
                continue;
            };
            let before = self.statuses.pod_resize_conditions(&uid);
            let was_deferred = pending::is_deferred(&before);
            let decision = self.handle_pod_resources_resize(&pod, &active).await;
            tracing::debug!(pod = %pod.key(), %uid, ?decision, trigger = trigger.as_str(), "Pod resize");
            if decision != Decision::Deferred {
                self.pending.lock().remove(&uid);
            }
            if was_deferred && matches!(decision, Decision::Unchanged | Decision::Allocated) {
                metrics::counter!(
                    "kubelet_pod_deferred_accepted_resizes_total",
                    "retry_trigger" => trigger.as_str()
                )
                .increment(1);
            }
            if decision == Decision::Allocated || self.statuses.pod_resize_conditions(&uid) != before {
                to_sync.push(pod);
            }
        }
        *self.holders.lock() = match self.has_pending_resizes() {
            true => active().iter().map(|pod| pod.uid()).collect(),
            false => Vec::new(),
        };
        to_sync
    }

    /// Whether a pod that held resources when resizes were last refused is gone. `active` is sorted by UID.
    pub(crate) fn some_holder_is_gone(&self, active: &[Arc<Pod>]) -> bool {
        let holds = |uid: &PodUid| {
            active
                .binary_search_by(|pod| pod.uid_str().cmp(uid.as_str()))
                .is_ok()
        };
        !self.holders.lock().iter().all(holds)
    }

    /// `handlePodResourcesResize`
    async fn handle_pod_resources_resize(
        &self,
        pod: &Arc<Pod>,
        active: &impl Fn() -> Vec<Arc<Pod>>,
    ) -> Decision {
        let uid = pod.uid();
        if !self.state.differs(pod) {
            self.statuses.clear_pod_resize_pending_condition(&uid);
            return Decision::Unchanged;
        }
        let generation = pod.metadata.generation.unwrap_or_default();
        let Err(rejection) = self.can_resize(pod, active).await else {
            self.state.set_allocated_resources(pod);
            self.statuses.clear_pod_resize_pending_condition(&uid);
            // Conditions of an earlier resize do not apply to this one.
            self.statuses.clear_pod_resize_in_progress_condition(&uid);
            self.statuses
                .set_pod_resize_in_progress_condition(&uid, "", "", generation);
            let message = resize_message("Pod resize started", pod, generation, "");
            self.record(pod, EventType::Normal, "ResizeStarted", message);
            return Decision::Allocated;
        };
        let Rejection { reason, message } = rejection;
        tracing::info!(pod = %pod.key(), %uid, reason, operation = "resize", "Pod admission denied: {message}");
        let infeasible = reason == INFEASIBLE;
        let is_new = self
            .statuses
            .set_pod_resize_pending_condition(&uid, &reason, &message, generation);
        if is_new {
            if !infeasible {
                count_deferral("resize");
            }
            let event = if infeasible {
                "ResizeInfeasible"
            } else {
                "ResizeDeferred"
            };
            let message = resize_message(&format!("Pod resize {reason}"), pod, generation, &message);
            self.record(pod, EventType::Warning, event, message);
        }
        match infeasible {
            true => Decision::Infeasible,
            false => Decision::Deferred,
        }
    }

    /// `canAdmitPod`
    async fn can_resize(&self, pod: &Arc<Pod>, active: &impl Fn() -> Vec<Arc<Pod>>) -> Result<(), Rejection> {
        if let Some(refusal) = feasible::refusal(&self.state, &*self.runtime, pod) {
            let detail = refusal.reason_detail;
            metrics::counter!("kubelet_pod_infeasible_resizes_total", "reason_detail" => detail).increment(1);
            return Err(Rejection::new(INFEASIBLE, refusal.message));
        }
        if self.admission.is_empty() {
            return Ok(());
        }
        let mut others = active();
        others.retain(|other| other.uid_str() != pod.uid_str());
        let attributes = PodAdmitAttributes::new(pod, &others).with_operation(Operation::Resize);
        self.admission.admit(&attributes).await
    }

    /// Whether the pod holds less CPU or memory than its earlier version `before` (`HandlePodReconcile`). Requests
    /// beyond the allocation do not count.
    pub(crate) fn holds_less(&self, before: &Arc<Pod>, pod: &Arc<Pod>) -> bool {
        let held = |pod| held_by(&self.state.update_pod_from_allocation(pod));
        let (old, new) = (held(before), held(pod));
        ["cpu", "memory"]
            .into_iter()
            .any(|resource| new.get(resource).unwrap_or(&0) < old.get(resource).unwrap_or(&0))
    }

    fn record(&self, pod: &Pod, event_type: EventType, reason: &str, message: String) {
        self.recorder
            .record(Event::about(pod, event_type, reason, message));
    }
}

/// Whether the desired pod requests more CPU or memory than it was allocated (`isResizeIncreasingRequests`).
fn increases_requests(allocated: &Pod, desired: &Pod) -> bool {
    let [old, new] = [allocated, desired].map(|pod| pod_requests(pod).unwrap_or_default());
    ["cpu", "memory"]
        .into_iter()
        .any(|resource| new.get(resource).unwrap_or(&0) > old.get(resource).unwrap_or(&0))
}

impl fmt::Debug for AllocationManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationManager")
            .field("state", &self.state)
            .field("pending", &*self.pending.lock())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(of_pod: Option<[&str; 2]>, containers: [Option<[&str; 2]>; 3]) -> Pod {
        let list = |[cpu, memory]: [&str; 2]| json!({"requests": {"cpu": cpu, "memory": memory}});
        let container =
            |asks: Option<[&str; 2]>| json!({"name": "c", "resources": asks.map_or(json!({}), list)});
        let containers: Vec<Value> = containers.into_iter().map(container).collect();
        let spec = json!({"containers": containers, "resources": of_pod.map(list)});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn what_counts_is_the_sum() {
        let one = Some(["1", "1Gi"]);
        let of_pod = Some(["2500m", "2500Mi"]);
        let [less, more] = [Some(["500m", "500Mi"]), Some(["1500m", "1500Mi"])];
        let table = [
            // of the pod before and after, of its containers after; before it is one, one and none
            (None, None, [more, one, None], true),
            (None, None, [less, one, None], false),
            (None, None, [Some(["1500m", "500Mi"]), one, None], true),
            (None, None, [Some(["500m", "1500Mi"]), one, None], true),
            (None, None, [more, less, None], false),
            (None, None, [less, less, None], false),
            (None, None, [None, one, None], false),
            (None, None, [one, one, one], true),
            (of_pod, Some(["3", "2500Mi"]), [one, one, None], true),
            (of_pod, Some(["2500m", "2000Mi"]), [one, one, None], false),
            (of_pod, Some(["3", "2000Mi"]), [one, one, None], true),
            (of_pod, of_pod, [more, one, None], false),
            (of_pod, of_pod, [less, one, None], false),
            (of_pod, Some(["2600m", "2500Mi"]), [more, one, None], true),
            (of_pod, Some(["2", "2500Mi"]), [less, one, None], false),
        ];
        for case @ (of_pod, of_pod_then, containers, expected) in table {
            let (before, after) = (pod(of_pod, [one, one, None]), pod(of_pod_then, containers));
            assert_eq!(increases_requests(&before, &after), expected, "{case:?}");
        }
    }
}
