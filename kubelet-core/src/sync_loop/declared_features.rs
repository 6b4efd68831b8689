//! Pod updates that need a feature which the node does not declare.

use k8s_openapi::api::core::v1::Pod;

use super::SyncLoop;
use crate::{Event, EventType, PodExt};

impl SyncLoop {
    /// The API server should have rejected the update; the kubelet only emits an event.
    pub(super) fn tell_of_missing_features(&self, before: &Pod, pod: &Pod) {
        let features = self.declared_features.as_ref();
        let Some(message) = features.and_then(|features| features.missing_for_change(before, pod)) else {
            return;
        };
        tracing::error!(pod = %pod.key(), uid = pod.uid_str(), "A pod update needs features that this node does not declare: {message}");
        self.recorder.record(Event::about(
            pod,
            EventType::Warning,
            "FailedNodeDeclaredFeaturesCheck",
            message,
        ));
    }
}
