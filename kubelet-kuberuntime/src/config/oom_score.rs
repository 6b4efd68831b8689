//! The OOM score adjustment of a container (`pkg/kubelet/qos/policy.go`).

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::{PodExt, QosClass, qos_class};

use super::resource_lists::{ResourceLists, containers_total, get};
use super::{NodeSettings, Result};

/// The score of pods that the kernel should kill last (`guaranteedOOMScoreAdj`).
const GUARANTEED_OOM_SCORE_ADJ: i64 = -997;
/// `besteffortOOMScoreAdj`
const BEST_EFFORT_OOM_SCORE_ADJ: i64 = 1000;
/// `SystemNodeCritical`
const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";

/// The OOM score adjustment of a container (`GetContainerOOMScoreAdjust`). The less memory a burstable container
/// requests, the earlier the kernel kills it.
pub(super) fn oom_score_adj(node: &NodeSettings, pod: &Pod, container: &Container) -> Result<i64> {
    if is_node_critical(pod) {
        return Ok(GUARANTEED_OOM_SCORE_ADJ);
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return Ok(GUARANTEED_OOM_SCORE_ADJ),
        QosClass::BestEffort => return Ok(BEST_EFFORT_OOM_SCORE_ADJ),
        QosClass::Burstable => {}
    }
    let share = unclaimed_memory_per_container(pod)?;
    let mut request = memory_request(container)?.saturating_add(share);
    if is_sidecar(pod, container) {
        // A sidecar must not be killed before the containers that it serves.
        request = request.max(least_regular_memory_request(pod)?.saturating_add(share));
    }
    let adjust = match i64::try_from(node.memory_capacity) {
        Ok(capacity) if capacity > 0 => {
            let per_mille = i128::from(request) * 1000 / i128::from(capacity);
            1000 - i64::try_from(per_mille).unwrap_or(1000)
        }
        _ => BEST_EFFORT_OOM_SCORE_ADJ,
    };
    // Between the scores of the two other classes, and never equal to the lower one.
    Ok(adjust.clamp(1000 + GUARANTEED_OOM_SCORE_ADJ, BEST_EFFORT_OOM_SCORE_ADJ - 1))
}

/// `IsNodeCriticalPod`
fn is_node_critical(pod: &Pod) -> bool {
    let class = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority_class_name.as_deref());
    pod.is_critical() && class == Some(SYSTEM_NODE_CRITICAL)
}

/// The pod-level memory request beyond the containers' requests, divided among them (`remainingPodMemReqPerContainer`).
fn unclaimed_memory_per_container(pod: &Pod) -> Result<i64> {
    let of_pod = ResourceLists::of_pod(pod)?;
    let (Some(spec), Some(total)) = (&pod.spec, of_pod.requests.get("memory")) else {
        return Ok(0);
    };
    let claimed = get(&containers_total(spec, |lists| &lists.requests)?, "memory");
    let containers = spec.containers.len() + spec.init_containers.iter().flatten().count();
    let containers = i64::try_from(containers).unwrap_or(i64::MAX);
    let unclaimed = total.value().saturating_sub(claimed.value()).max(0);
    Ok(unclaimed / containers.max(1))
}

/// `minRegularContainerMemory`
fn least_regular_memory_request(pod: &Pod) -> Result<i64> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests: Vec<i64> = containers.map(memory_request).collect::<Result<_>>()?;
    Ok(requests.into_iter().min().unwrap_or(0))
}

fn memory_request(container: &Container) -> Result<i64> {
    Ok(get(&ResourceLists::of_container(container)?.requests, "memory").value())
}

fn is_sidecar(pod: &Pod, container: &Container) -> bool {
    let init = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let mut names = init.map(|container| &container.name);
    is_restartable_init_container(container) && names.any(|name| *name == container.name)
}
