//! Detects and counts the resizes that a pod update requests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::resources::{InPlaceResize, resizable_containers};
use crate::quantity::Amount;
use crate::requirements::same_requirements;

/// Whether the new version of the pod requests other CPU or memory than the previous one. Counts the changes of its
/// containers (`recordResizeOperations`).
pub(crate) fn record_resize_operations(before: &Pod, pod: &Pod, settings: &InPlaceResize) -> bool {
    let mut resized = false;
    for old in resizable_containers(before, settings) {
        let new = resizable_containers(pod, settings).find(|container| container.name == old.name);
        let Some(new) = new else { continue };
        for (resource, requirement, list) in LISTS {
            let (old, new) = (amount(old, list, resource), amount(new, list, resource));
            let Some(operation) = operation(old, new) else {
                continue;
            };
            resized = true;
            metrics::counter!(
                "kubelet_container_requested_resizes_total",
                "resource" => resource,
                "requirement" => requirement,
                "operation" => operation
            )
            .increment(1);
        }
    }
    let of_pod = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.resources.clone());
    resized || !same_requirements(of_pod(before).as_ref(), of_pod(pod).as_ref())
}

type List = fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>;

const LISTS: [(&str, &str, List); 4] = [
    ("memory", "requests", |of| of.requests.as_ref()),
    ("memory", "limits", |of| of.limits.as_ref()),
    ("cpu", "requests", |of| of.requests.as_ref()),
    ("cpu", "limits", |of| of.limits.as_ref()),
];

fn amount(container: &Container, list: List, resource: &str) -> Amount {
    let quantity = container
        .resources
        .as_ref()
        .and_then(list)
        .and_then(|list| list.get(resource));
    quantity
        .and_then(|quantity| Amount::try_from(quantity).ok())
        .unwrap_or_default()
}

/// `resizeOperationForResources`
fn operation(old: Amount, new: Amount) -> Option<&'static str> {
    match (old.is_zero(), new.is_zero()) {
        (false, true) => Some("remove"),
        (true, false) => Some("add"),
        _ if new < old => Some("decrease"),
        _ if new > old => Some("increase"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(of_pod: Value, of_container: Value) -> Pod {
        let container = json!({"name": "c", "resources": of_container});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}});
        let spec = json!({"initContainers": [sidecar], "containers": [container], "resources": of_pod});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[test]
    fn other_cpu_and_memory_make_a_resize_and_other_words_for_it_do_not() {
        let none = json!(null);
        let one = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        let cases = [
            (none.clone(), one.clone(), none.clone(), one.clone(), false),
            (
                none.clone(),
                one.clone(),
                none.clone(),
                json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}}),
                false,
            ),
            (
                none.clone(),
                none.clone(),
                none.clone(),
                json!({"limits": {}}),
                false,
            ),
            (
                none.clone(),
                one.clone(),
                none.clone(),
                json!({"requests": {"cpu": "2", "memory": "1Gi"}}),
                true,
            ),
            (
                none.clone(),
                one.clone(),
                none.clone(),
                json!({"requests": {"cpu": "1"}}),
                true,
            ),
            (
                none.clone(),
                none.clone(),
                none.clone(),
                json!({"limits": {"cpu": "1"}}),
                true,
            ),
            // Nothing else of a container may change in place.
            (
                none.clone(),
                none.clone(),
                none.clone(),
                json!({"limits": {"example.com/gpu": "1"}}),
                false,
            ),
            (one.clone(), none.clone(), one.clone(), none.clone(), false),
            (
                one.clone(),
                none.clone(),
                json!({"requests": {"cpu": "2", "memory": "1Gi"}}),
                none.clone(),
                true,
            ),
        ];
        for (pod_before, before, pod_after, after, expected) in cases {
            let got = record_resize_operations(
                &pod(pod_before, before.clone()),
                &pod(pod_after, after.clone()),
                &InPlaceResize::default(),
            );
            assert_eq!(got, expected, "{before} → {after}");
        }
    }

    #[test]
    fn what_an_amount_goes_through() {
        let at = Amount::from_milli;
        for (old, new, expected) in [
            (0, 0, None),
            (5, 5, None),
            (0, 5, Some("add")),
            (5, 0, Some("remove")),
            (5, 4, Some("decrease")),
            (5, 6, Some("increase")),
        ] {
            assert_eq!(operation(at(old), at(new)), expected, "{old} → {new}");
        }
    }
}
