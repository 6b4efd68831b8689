//! A sink that logs.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{PodExt, Result, StatusSink};

use crate::status_ext::{find_condition, phase};

/// Logs each changed status as a `tracing` event at level INFO, with the pod's phase, the number of ready containers,
/// and the restart counts; at level DEBUG if none of these has changed.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LogSink;

impl LogSink {
    /// A sink that logs.
    pub fn new() -> Self {
        Self
    }
}

/// What is logged of a status.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shown<'a> {
    phase: &'a str,
    reason: &'a str,
    is_ready: bool,
    containers: usize,
    ready: usize,
    restarts: i32,
}

impl<'a> Shown<'a> {
    fn of(status: &'a ApiPodStatus) -> Self {
        let containers = status.container_statuses.as_deref().unwrap_or_default();
        Self {
            phase: phase(status),
            reason: status.reason.as_deref().unwrap_or_default(),
            is_ready: find_condition(status, "Ready").is_some_and(|condition| condition.status == "True"),
            containers: containers.len(),
            ready: containers.iter().filter(|status| status.ready).count(),
            restarts: containers.iter().map(|status| status.restart_count).sum(),
        }
    }
}

#[async_trait]
impl StatusSink for LogSink {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        let (before, now) = (Shown::of(old), Shown::of(new));
        let (pod, uid) = (pod.key(), pod.uid_str());
        let Shown {
            phase,
            reason,
            is_ready,
            containers,
            ready,
            restarts,
        } = now;
        // What is shown is the same: something else of the status has changed.
        if before == now && !phase.is_empty() {
            tracing::debug!(%pod, uid, phase, reason, is_ready, containers, ready, restarts, "pod status changed");
        } else {
            tracing::info!(%pod, uid, phase, reason, is_ready, containers, ready, restarts, "pod status changed");
        }
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
