//! The kubelet's metrics about statuses (`pkg/kubelet/metrics`).

use std::time::Duration;

use metrics::{counter, histogram};

/// From the first change of a pod's status until the sink had it.
pub(crate) fn pod_status_synced(after: Duration) {
    histogram!("kubelet_pod_status_sync_duration_seconds").record(after.as_secs_f64());
}

/// A container ended. `kind` is `container`, `init_container` or `ephemeral_container`.
pub(crate) fn container_terminated(kind: &'static str, exit_code: i32, reason: &str) {
    counter!(
        "kubelet_terminated_containers_total",
        "container_type" => kind,
        "exit_code" => exit_code.to_string(),
        "reason" => reason.to_owned(),
    )
    .increment(1);
}
