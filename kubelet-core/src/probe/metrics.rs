//! The kubelet's metrics of probes. Counters of an ended worker stay: the `metrics` facade cannot remove them;
//! exporters drop idle ones.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use metrics::{counter, histogram};

use super::{ProbeKind, ProbeResult};
use crate::PodExt;

/// Counts one result of a probe. `took` starts with the check of the container's status.
pub(super) fn probed(kind: ProbeKind, pod: &Pod, container: &str, result: ProbeResult, took: Duration) {
    let key = pod.key();
    let (name, namespace) = (key.name.to_string(), key.namespace.to_string());
    counter!(
        "prober_probe_total",
        "probe_type" => kind.as_str(),
        "result" => match result {
            ProbeResult::Success => "successful",
            ProbeResult::Failure => "failed",
            ProbeResult::Unknown => "unknown",
        },
        "container" => container.to_owned(),
        "pod" => name.clone(),
        "namespace" => namespace.clone(),
        "pod_uid" => pod.uid_str().to_owned(),
    )
    .increment(1);
    if result != ProbeResult::Failure {
        histogram!(
            "prober_probe_duration_seconds",
            "probe_type" => kind.as_str(),
            "container" => container.to_owned(),
            "pod" => name,
            "namespace" => namespace,
        )
        .record(took);
    }
}
