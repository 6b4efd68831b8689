//! Ends a pod and waits for it, for callers that need its resources.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;

use super::{KillPod, PodWorkersHandle, UpdatePod};
use crate::deadline::within;
use crate::{Event, EventRecorder, EventType, PodExt, PodStatusFn, Result};

/// The extra time of the runtime beyond the grace period.
const MIN_TIMEOUT: u64 = 10;

impl PodWorkersHandle {
    /// Ends the pod and waits until its containers have ended, for 1.5 times its grace period and at least 10 s
    /// (`killPodNow`). `status_fn` puts the reason in its status.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`](crate::Error::Timeout), and an event `ExceededGracePeriod`. The pod continues to end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait; the pod continues to end.
    pub async fn kill_pod_now(
        &self,
        pod: &Arc<Pod>,
        evict: bool,
        grace_period: Option<Duration>,
        status_fn: Option<PodStatusFn>,
        recorder: &dyn EventRecorder,
    ) -> Result<()> {
        let own = || {
            let own = pod.spec.as_ref()?.termination_grace_period_seconds?;
            u64::try_from(own).ok()
        };
        let grace = grace_period.map_or_else(|| own().unwrap_or_default(), |given| given.as_secs());
        let timeout = Duration::from_secs(grace.saturating_add(grace / 2).max(MIN_TIMEOUT));
        let (completed, ended) = oneshot::channel();
        self.update_pod(UpdatePod::kill(
            pod.clone(),
            KillPod {
                evict,
                grace_period,
                status_fn,
                completed: Some(completed),
            },
        ));
        let ended = async {
            // A dropped sender means that there is nothing left to end.
            let _ = ended.await;
            Ok(())
        };
        let ended = within("kill pod", Some(&pod.uid()), timeout, ended).await;
        ended.inspect_err(|_| {
            recorder.record(Event::about(
                pod,
                EventType::Warning,
                "ExceededGracePeriod",
                "Container runtime did not kill the pod within specified grace period.",
            ));
        })
    }
}
