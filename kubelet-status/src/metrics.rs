//! The kubelet's metrics about statuses (`pkg/kubelet/metrics`).

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use metrics::{counter, gauge, histogram};

use crate::resize::{DEFERRED, INFEASIBLE, ResizeConditions};

/// The time from the first change of a pod's status until the sink has it.
pub(crate) fn pod_status_synced(after: Duration) {
    let milliseconds = Duration::from_millis(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    histogram!("kubelet_pod_status_sync_duration_seconds").record(milliseconds.as_secs_f64());
}

/// A container has exited. `kind` is `container`, `init_container` or `ephemeral_container`.
pub(crate) fn container_terminated(kind: &'static str, exit_code: i32, reason: &str) {
    counter!(
        "kubelet_terminated_containers_total",
        "container_type" => kind,
        "exit_code" => exit_code.to_string(),
        "reason" => reason.to_owned(),
    )
    .increment(1);
}

/// The time from a pod's creation until the API server shows it as running.
pub(crate) fn pod_started(after: SignedDuration) {
    histogram!("kubelet_pod_start_total_duration_seconds").record(after.as_secs_f64());
}

/// The same without image pulls and init containers, for pods in the scope of the SLO.
pub(crate) fn pod_started_sli(after: SignedDuration, is_first_network_pod: bool) {
    histogram!("kubelet_pod_start_sli_duration_seconds").record(after.as_secs_f64());
    if is_first_network_pod {
        gauge!("kubelet_first_network_pod_start_sli_duration_seconds").set(after.as_secs_f64());
    }
}

/// How many pods have a pending resize, and how many have one in progress.
pub(crate) fn resizes<'a>(pods: impl Iterator<Item = &'a ResizeConditions>) {
    let (mut deferred, mut infeasible, mut in_progress) = (0_u32, 0_u32, 0_u32);
    for conditions in pods {
        match conditions.pending_reason() {
            Some(INFEASIBLE) => infeasible += 1,
            Some(_) => deferred += 1,
            None => {}
        }
        in_progress += u32::from(conditions.is_in_progress());
    }
    for (reason, count) in [(DEFERRED, deferred), (INFEASIBLE, infeasible)] {
        gauge!("kubelet_pod_pending_resizes", "reason" => reason.to_lowercase()).set(count);
    }
    gauge!("kubelet_pod_in_progress_resizes").set(in_progress);
}
