//! Nodes that run out of memory, disk or process ids, and hosts that shut down.

mod checks;
mod faults;
mod host;
mod managers;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::annotations::{CONFIG_MIRROR, CONFIG_SOURCE};
use serde_json::{Value, json};

pub(crate) use self::host::SimulatedHost;
pub(super) use self::managers::Managers;
use crate::memory_cri::hash;

/// The lowest priority of pods that the node needs (`SystemCriticalPriority`).
const CRITICAL: i32 = 2_000_000_000;

/// Whether an eviction must spare the pod: it is static, or has a system priority.
fn is_spared(pod: &Pod) -> bool {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority);
    let source = pod.annotation(CONFIG_SOURCE);
    pod.annotation(CONFIG_MIRROR).is_some()
        || source.is_some_and(|source| source != "api")
        || priority.is_some_and(|priority| priority >= CRITICAL)
}

/// Gives a pod a priority, now and then that of a critical pod.
pub(super) fn add_priority(pod: &mut Value, seed: u64) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let priority =
        [0, 0, 0, 1000, 1000, 50_000, -10, CRITICAL][usize::try_from(hash(seed, &name) % 8).unwrap_or(0)];
    pod["spec"]["priority"] = json!(priority);
}
