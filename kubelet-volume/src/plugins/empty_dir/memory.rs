//! The size of a volume in memory.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;
use kubelet_core::restart_rules::is_restartable_init_container;

/// The least of its own limit, the memory limit of its pod, and the node's allocatable memory
/// (`calculateEmptyDirMemorySize`).
pub(super) fn size(
    allocatable: Option<&Quantity>,
    source: Option<&EmptyDirVolumeSource>,
    pod: &Pod,
) -> Option<u64> {
    let own = source.and_then(|source| source.size_limit.as_ref());
    let [allocatable, own] = [allocatable, own].map(|limit| Amount::try_from(limit?).ok());
    let bounds = [allocatable, own, limit_of_pod(pod)].into_iter().flatten();
    let least = bounds.filter(|amount| amount.is_positive()).min()?;
    u64::try_from(least.value()).ok()
}

/// The memory limit of all containers of the pod that can run at the same time, if each has a limit, or the pod has
/// one (`ResourceConfigForPod`).
fn limit_of_pod(pod: &Pod) -> Option<Amount> {
    let spec = pod.spec.as_ref()?;
    if let Some(limit) = limit_of(spec.resources.as_ref()) {
        return Some(limit);
    }
    let of = |container: &Container| limit_of(container.resources.as_ref());
    let mut total: Amount = spec.containers.iter().map(of).sum::<Option<_>>()?;
    // An init container runs beside the sidecars that were started before it.
    let (mut sidecars, mut most) = (Amount::ZERO, Amount::ZERO);
    for container in spec.init_containers.iter().flatten() {
        let needed = sidecars + of(container)?;
        if is_restartable_init_container(container) {
            total = total + of(container)?;
            sidecars = needed;
        }
        most = most.max(needed);
    }
    Some(total.max(most))
}

fn limit_of(resources: Option<&ResourceRequirements>) -> Option<Amount> {
    let limit = resources?.limits.as_ref()?.get("memory")?;
    Amount::try_from(limit).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_in_memory_is_bounded_by_its_own_limit_its_pods_and_the_nodes() {
        let none = json!({});
        let container = |memory: &str| json!({"name": "c", "resources": {"limits": {"memory": memory}}});
        let sidecar = |memory: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": {"memory": memory}}});
        let unbound = json!({"name": "c"});
        let only = |container: &Value| json!({"containers": [container]});
        let cases: [(Option<&str>, Value, Value, Option<u64>); 11] = [
            (None, none.clone(), only(&unbound), None),
            (Some("8Ki"), none.clone(), only(&unbound), Some(8192)),
            (
                Some("1Ki"),
                json!({"sizeLimit": "2Ki"}),
                only(&container("4Ki")),
                Some(1024),
            ),
            (None, json!({"sizeLimit": "0"}), only(&unbound), None),
            (None, json!({"sizeLimit": "1Ki"}), only(&unbound), Some(1024)),
            (
                None,
                none.clone(),
                json!({"containers": [container("2Ki"), container("1Ki")]}),
                Some(3072),
            ),
            (
                None,
                none.clone(),
                json!({"containers": [container("2Ki"), unbound]}),
                None,
            ),
            (
                None,
                json!({"sizeLimit": "4Ki"}),
                only(&container("2Ki")),
                Some(2048),
            ),
            (
                None,
                json!({"sizeLimit": "1Ki"}),
                only(&container("2Ki")),
                Some(1024),
            ),
            (
                None,
                none.clone(),
                json!({"containers": [container("1Ki")], "initContainers": [sidecar("1Ki"), container("4Ki")]}),
                Some(5120),
            ),
            (
                None,
                none,
                json!({"containers": [unbound], "resources": {"limits": {"memory": "8Ki"}}}),
                Some(8192),
            ),
        ];
        for (allocatable, source, spec, expected) in cases {
            let allocatable = allocatable.map(|amount| Quantity(amount.to_owned()));
            let source = serde_json::from_value(source).unwrap();
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let found = size(allocatable.as_ref(), Some(&source), &pod);
            assert_eq!(found, expected, "{source:?} {spec}");
        }
    }
}
