//! The handle of the status manager.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, ContainerId, PodExt, PodStatusInput, PodStatusReporter, PodUid};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::error::Error;
use crate::records::{Now, Records};
use crate::resize::{DEFERRED, INFEASIBLE, ResizeConditions, is_about_resize};
use crate::{NodeFacts, generate_api_pod_status};

/// Updates and queries the [`StatusManager`](crate::StatusManager). Cheap to clone; no call waits.
///
/// Most of its methods are in [`PodStatusReporter`]. Resize conditions (`PodResizePending`, `PodResizeInProgress`)
/// appear in the next [generated](PodStatusReporter::generate) status of the pod. They are removed when the pod ends.
#[derive(Clone)]
pub struct StatusManagerHandle(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) records: Mutex<Records>,
    /// A pod has something to send.
    pub(crate) changed: Notify,
    /// A call has arrived, whether or not there is something to send.
    pub(crate) touched: Notify,
    pub(crate) node: RwLock<NodeFacts>,
    pub(crate) clock: Clock,
    pub(crate) started_at: Timestamp,
}

impl StatusManagerHandle {
    /// The node's IPs or features changed. Statuses that are generated later use the new values.
    pub fn set_node_facts(&self, node: NodeFacts) {
        *self.0.node.write() = node;
    }

    /// Whether a resize waits until the node has room (`IsPodResizeDeferred`).
    pub fn is_pod_resize_deferred(&self, uid: &PodUid) -> bool {
        self.resize_pends_as(uid, DEFERRED)
    }

    /// Whether a resize is pending for which the node will never have room (`IsPodResizeInfeasible`).
    pub fn is_pod_resize_infeasible(&self, uid: &PodUid) -> bool {
        self.resize_pends_as(uid, INFEASIBLE)
    }

    fn resize<T>(&self, uid: &PodUid, change: impl FnOnce(&mut ResizeConditions) -> T) -> T {
        let mut records = self.0.records.lock();
        records.resizes(|resizes| change(resizes.entry(uid.clone()).or_default()))
    }

    /// Whether the pod has a resize condition.
    fn is_resized(&self, uid: &PodUid) -> bool {
        self.0.records.lock().resize_conditions(uid).is_some()
    }

    fn resize_pends_as(&self, uid: &PodUid, reason: &str) -> bool {
        let records = self.0.records.lock();
        let pending = records
            .resize_conditions(uid)
            .and_then(ResizeConditions::pending_reason);
        pending == Some(reason)
    }

    /// Applies a change, and wakes the manager if there is something to send.
    fn change(&self, change: impl FnOnce(&mut Records, &Now) -> Result<bool, Error>) {
        let result = change(&mut self.0.records.lock(), &Now(self.0.clock));
        self.0.touched.notify_one();
        match result {
            Ok(true) => self.0.changed.notify_one(),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "status update aborted"),
        }
    }
}

impl PodStatusReporter for StatusManagerHandle {
    fn generate(&self, input: &PodStatusInput<'_>) -> ApiPodStatus {
        let uid = input.pod.uid();
        if input.terminal && self.is_resized(&uid) {
            self.resize(&uid, |resize| *resize = ResizeConditions::default());
        }
        let resizes = self.pod_resize_conditions(&uid);
        let (looked_up, no_status) = (
            input.reported.is_none().then(|| self.pod_status(&uid)).flatten(),
            ApiPodStatus::default(),
        );
        let reported = input.reported.or(looked_up.as_deref());
        let previous = reported.or(input.pod.status.as_ref()).unwrap_or(&no_status);
        let mut input = *input;
        input.resize_conditions = &resizes;
        generate_api_pod_status(&input, previous, &self.0.node.read(), self.0.started_at)
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<ApiPodStatus>> {
        self.0.records.lock().status(uid).cloned()
    }

    fn begin_pod(&self, uid: &PodUid) {
        // A pod rarely comes back.
        if self.0.records.lock().begin_pod(uid, &Now(self.0.clock)) {
            self.0.touched.notify_one();
            self.0.changed.notify_one();
        }
    }

    fn containers_ended(&self, uid: &PodUid) {
        self.change(|records, now| Ok(records.containers_ended(uid, now)));
    }

    fn can_be_shown_by(&self, pod: &Pod, mirror: &Pod) -> bool {
        self.0.records.lock().can_be_shown_by(pod, mirror)
    }

    fn set_pod_status(&self, pod: &Arc<Pod>, status: ApiPodStatus) {
        self.change(|records, now| records.set_pod_status(pod, status, now));
    }

    fn terminate_pod(&self, pod: &Arc<Pod>) {
        self.change(|records, now| records.terminate_pod(pod, now));
    }

    fn on_pod_sandbox_ready(&self, pod: &Arc<Pod>) {
        self.change(|records, now| records.on_pod_sandbox_ready(pod, now));
    }

    fn set_container_readiness(&self, uid: &PodUid, container: &ContainerId, ready: bool) {
        self.change(|records, now| records.set_container_readiness(uid, container, ready, now));
    }

    fn set_container_startup(&self, uid: &PodUid, container: &ContainerId, started: bool) {
        self.change(|records, now| records.set_container_startup(uid, container, started, now));
    }

    fn record_image_started_pulling(&self, uid: &PodUid) {
        let now = self.0.clock.now();
        let mut records = self.0.records.lock();
        records.startup_latency().image_started_pulling(uid, now);
    }

    fn record_image_finished_pulling(&self, uid: &PodUid) {
        let now = self.0.clock.now();
        let mut records = self.0.records.lock();
        records.startup_latency().image_finished_pulling(uid, now);
    }

    fn pod_resize_conditions(&self, uid: &PodUid) -> Vec<PodCondition> {
        let records = self.0.records.lock();
        records
            .resize_conditions(uid)
            .map(ResizeConditions::list)
            .unwrap_or_default()
    }

    fn set_pod_resize_pending_condition(
        &self,
        uid: &PodUid,
        reason: &str,
        message: &str,
        observed_generation: i64,
    ) -> bool {
        let now = self.0.clock.api_now();
        self.resize(uid, |resize| {
            resize.set_pending(reason, message, observed_generation, &now)
        })
    }

    fn set_pod_resize_in_progress_condition(
        &self,
        uid: &PodUid,
        reason: &str,
        message: &str,
        observed_generation: i64,
    ) -> (i64, bool) {
        let now = self.0.clock.api_now();
        self.resize(uid, |resize| {
            resize.set_in_progress(reason, message, observed_generation, &now)
        })
    }

    fn clear_pod_resize_pending_condition(&self, uid: &PodUid) {
        if self.is_resized(uid) {
            self.resize(uid, ResizeConditions::clear_pending);
        }
    }

    fn clear_pod_resize_in_progress_condition(&self, uid: &PodUid) -> Option<i64> {
        self.is_resized(uid)
            .then(|| self.resize(uid, ResizeConditions::clear_in_progress))?
    }

    fn backfill_pod_resize_conditions(&self, pod: &Pod) {
        let status = pod.status.as_ref();
        let mut shown = status
            .into_iter()
            .flat_map(|status| status.conditions.iter().flatten());
        if shown.any(is_about_resize) {
            let now = self.0.clock.api_now();
            self.resize(&pod.uid(), |resize| resize.backfill(pod, &now));
        }
    }

    fn observe_pod(&self, pod: &Arc<Pod>) {
        self.change(|records, now| Ok(records.observe_pod(pod, now)));
    }

    fn remove_orphaned_statuses(&self, known: &HashSet<PodUid>) {
        // Usually there are none, and nothing needs to be sent.
        if self.0.records.lock().remove_orphaned(known) {
            self.0.touched.notify_one();
            self.0.changed.notify_one();
        }
    }
}

kubelet_core::impl_debug!(StatusManagerHandle);
