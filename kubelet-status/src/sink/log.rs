//! A sink that logs.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{PodExt, Result, StatusSink};

use crate::status_ext::{find_condition, phase};

/// Logs each changed status as a `tracing` event at level INFO, with the pod's phase, the number of ready containers,
/// and the restart counts.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LogSink;

impl LogSink {
    /// A sink that logs.
    pub fn new() -> Self {
        Self
    }
}

#[async_trait]
impl StatusSink for LogSink {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        _: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        let containers = new.container_statuses.as_deref().unwrap_or_default();
        tracing::info!(
            pod = %pod.key(),
            uid = pod.uid_str(),
            phase = phase(new),
            reason = new.reason.as_deref().unwrap_or_default(),
            is_ready = find_condition(new, "Ready").is_some_and(|condition| condition.status == "True"),
            containers = containers.len(),
            ready = containers.iter().filter(|status| status.ready).count(),
            restarts = containers.iter().map(|status| status.restart_count).sum::<i32>(),
            "pod status changed"
        );
        Ok(None)
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        tracing::info!(pod = %pod.key(), uid = pod.uid_str(), "pod deleted");
        Ok(())
    }

    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        tracing::info!(pod = %pod.key(), uid = pod.uid_str(), "pod gone");
        Ok(())
    }
}
