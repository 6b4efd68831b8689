//! When the sync loop decides resizes in place.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::SyncLoop;
use crate::allocation::record_resize_operations;
use crate::{PodExt, PodUid, RetryTrigger};

impl SyncLoop {
    /// The new version of the pod may request other resources than the previous one.
    pub(super) async fn note_resize(&self, before: Option<Arc<Pod>>, pod: &Arc<Pod>) {
        let allocations = self.allocations.state();
        let asks = |before: Arc<Pod>| record_resize_operations(&before, pod, allocations.settings());
        if !before.is_none_or(asks) {
            return;
        }
        let uid = pod.uid();
        if allocations.differs(pod) {
            self.decide_resizes(&[uid], RetryTrigger::PodUpdated).await;
        } else {
            // The pending resize was reverted.
            self.statuses.clear_pod_resize_pending_condition(&uid);
        }
    }

    /// Decides these resizes, together with the pending ones.
    pub(super) async fn decide_resizes(&self, resized: &[PodUid], trigger: RetryTrigger) {
        for uid in resized {
            self.allocations.push_pending_resize(uid);
        }
        if !resized.is_empty() {
            self.retry_pending_resizes(trigger).await;
        }
    }

    pub(super) async fn retry_pending_resizes(&self, trigger: RetryTrigger) {
        if !self.allocations.has_pending_resizes() {
            return;
        }
        if !self.sources.all_ready() {
            self.allocations.retry_when_sources_are_ready();
            return;
        }
        let active = || self.active_pods();
        for pod in self.allocations.retry_pending_resizes(trigger, active).await {
            self.sync_known_pod(&pod.uid());
        }
    }

    /// Waits until pending resizes are due to be retried; forever if there is none.
    pub(super) async fn resizes_are_due(&self) {
        match self.allocations.next_retry() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Whether this version of the pod holds fewer resources than the previous one.
    pub(super) fn freed(&self, before: &Arc<Pod>, pod: &Arc<Pod>) -> Option<RetryTrigger> {
        if self.allocations.holds_less(before, pod) {
            return Some(RetryTrigger::PodResized);
        }
        let ended = pod.is_terminal_phase() && !before.is_terminal_phase();
        ended.then_some(RetryTrigger::PodTerminated)
    }

    /// A pod that has ended releases its resources, whether or not its source receives that status.
    pub(super) async fn retry_resizes_after_ends(&self) {
        if self.allocations.has_pending_resizes() && self.allocations.some_holder_is_gone(&self.active_pods())
        {
            self.retry_pending_resizes(RetryTrigger::PodTerminated).await;
        }
    }
}
