//! What a pod as a whole requests, and where its limits are, of one resource.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::{Amount, WrittenAmount};
use crate::restart_rules::is_restartable_init_container;

/// What the pod requests of a resource, e.g. `memory`, its overhead included (`GetResourceRequestQuantity`). If the pod has
/// pod-level resources, those of its containers do not count.
///
/// A quantity that cannot be parsed counts as unset.
pub fn pod_request(pod: &Pod, resource: &str) -> Amount {
    let Some(spec) = &pod.spec else {
        return Amount::ZERO;
    };
    let of_containers = || sum_of_containers(pod, resource, requests);
    let request = match has_pod_level_resources(pod) {
        true => spec.resources.as_ref().and_then(|of_pod| {
            let supported = is_supported_at_pod_level(resource);
            find(requests(of_pod), resource).filter(|_| supported)
        }),
        false => of_containers(),
    };
    let request = request.map_or(Amount::ZERO, |request| request.amount);
    match find(spec.overhead.as_ref(), resource) {
        Some(overhead) if !request.is_zero() => request + overhead.amount,
        _ => request,
    }
}

/// The limit of the pod for a resource, its overhead included, with the family of suffixes to write it with
/// (`PodLimits`). `None` if neither the pod nor a container has one.
///
/// A quantity that cannot be parsed counts as unset.
pub fn pod_limit(pod: &Pod, resource: &str) -> Option<WrittenAmount> {
    let spec = pod.spec.as_ref()?;
    let of_pod = || find(limits(spec.resources.as_ref()?), resource);
    let limit = Some(())
        .filter(|()| has_pod_level_resources(pod) && is_supported_at_pod_level(resource))
        .and_then(|()| of_pod())
        .or_else(|| sum_of_containers(pod, resource, limits))?;
    Some(match find(spec.overhead.as_ref(), resource) {
        Some(overhead) if !limit.amount.is_zero() => limit + overhead,
        _ => limit,
    })
}

/// Whether the pod has requests or limits of its own, beside those of its containers (`IsPodLevelResourcesSet`).
pub fn has_pod_level_resources(pod: &Pod) -> bool {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    of_pod.is_some_and(|of_pod| {
        let lists = [requests(of_pod), limits(of_pod)];
        let mut names = lists.into_iter().flatten().flat_map(BTreeMap::keys);
        names.any(|name| is_supported_at_pod_level(name))
    })
}

type List = BTreeMap<String, Quantity>;

/// `IsSupportedPodLevelResource`
fn is_supported_at_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

fn requests(resources: &ResourceRequirements) -> Option<&List> {
    resources.requests.as_ref()
}

fn limits(resources: &ResourceRequirements) -> Option<&List> {
    resources.limits.as_ref()
}

/// The sum of the containers and sidecars, or the most that the init containers need at one time
/// (`AggregateContainerRequests`, `AggregateContainerLimits`).
fn sum_of_containers(
    pod: &Pod,
    resource: &str,
    list: fn(&ResourceRequirements) -> Option<&List>,
) -> Option<WrittenAmount> {
    let spec = pod.spec.as_ref()?;
    let of = |container: &Container| -> BTreeMap<(), WrittenAmount> {
        let resources = container.resources.as_ref();
        let amount = resources.and_then(|resources| find(list(resources), resource));
        amount.map(|amount| ((), amount)).into_iter().collect()
    };
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|container| (is_restartable_init_container(container), of(container)));
    needed_at_once(spec.containers.iter().map(of), init).remove(&())
}

/// What containers need at one time: the regular containers and the sidecars together, or an init container and the
/// sidecars that were started before it, whichever is more (`AggregateContainerRequests`). `init` says of each init
/// container whether it is a sidecar.
pub fn needed_at_once<K: Clone + Ord>(
    regular: impl IntoIterator<Item = BTreeMap<K, WrittenAmount>>,
    init: impl IntoIterator<Item = (bool, BTreeMap<K, WrittenAmount>)>,
) -> BTreeMap<K, WrittenAmount> {
    let mut total = BTreeMap::new();
    for needed in regular {
        add(&mut total, &needed);
    }
    let (mut sidecars, mut most) = (BTreeMap::new(), BTreeMap::new());
    for (is_sidecar, mut needed) in init {
        if is_sidecar {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed.clone_from(&sidecars);
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut most, &needed);
    }
    raise(&mut total, &most);
    total
}

fn add<K: Clone + Ord>(total: &mut BTreeMap<K, WrittenAmount>, more: &BTreeMap<K, WrittenAmount>) {
    for (resource, amount) in more {
        let sum = total.get(resource).map_or(*amount, |sum| *sum + *amount);
        total.insert(resource.clone(), sum);
    }
}

fn raise<K: Clone + Ord>(amounts: &mut BTreeMap<K, WrittenAmount>, others: &BTreeMap<K, WrittenAmount>) {
    for (resource, other) in others {
        let amount = amounts.entry(resource.clone()).or_insert(*other);
        if other.amount > amount.amount {
            *amount = *other;
        }
    }
}

fn find(list: Option<&List>, resource: &str) -> Option<WrittenAmount> {
    list?.get(resource)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn container(resources: Value) -> Value {
        json!({"name": "c", "resources": resources})
    }

    fn sidecar(resources: Value) -> Value {
        json!({"name": "s", "restartPolicy": "Always", "resources": resources})
    }

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn the_request_of_a_pod_is_that_of_its_containers_or_its_own() {
        let of = |memory: &str| json!({"requests": {"memory": memory}});
        let cases = [
            (json!({"containers": []}), 0),
            (
                json!({"containers": [container(of("1")), container(of("2")), container(json!({}))]}),
                3,
            ),
            (
                json!({"containers": [container(of("1"))], "overhead": {"memory": "5"}}),
                6,
            ),
            (
                json!({"containers": [container(json!({}))], "overhead": {"memory": "5"}}),
                0,
            ),
            (
                json!({
                    "containers": [container(of("1"))],
                    "initContainers": [sidecar(of("2")), container(of("9")), sidecar(of("4"))],
                }),
                11,
            ),
            (
                json!({"containers": [container(of("9"))], "resources": of("4")}),
                4,
            ),
            (
                json!({"containers": [container(of("9"))], "resources": {"limits": {"cpu": "4"}}}),
                0,
            ),
            (
                json!({"containers": [container(of("9"))], "resources": {"limits": {"disks": "4"}}}),
                9,
            ),
        ];
        for (spec, expected) in cases {
            let request = pod_request(&pod(&spec), "memory");
            assert_eq!(request, Amount::from_units(expected), "{spec}");
        }
    }

    #[test]
    fn the_limit_of_a_pod_keeps_how_it_is_written() {
        let of = |storage: &str| json!({"limits": {"ephemeral-storage": storage}});
        let cases = [
            (json!({"containers": [container(json!({}))]}), None),
            (
                json!({"containers": [container(of("1Gi")), container(of("1G"))]}),
                Some("2073741824"),
            ),
            (
                json!({"containers": [container(of("1Gi")), container(of("1Gi"))]}),
                Some("2Gi"),
            ),
            (
                json!({"containers": [container(of("0")), container(of("1Mi"))]}),
                Some("1Mi"),
            ),
            (
                json!({"containers": [container(of("1Gi"))], "initContainers": [container(of("3G"))]}),
                Some("3G"),
            ),
            // The pod has no limit of its own for this resource.
            (
                json!({"containers": [container(of("1Gi"))], "resources": of("2Gi")}),
                Some("1Gi"),
            ),
        ];
        for (spec, expected) in cases {
            let limit = pod_limit(&pod(&spec), "ephemeral-storage");
            let written = limit.map(|limit| limit.to_string());
            assert_eq!(written.as_deref(), expected, "{spec}");
        }
    }
}
