//! The requests of pods, and the allocatable resources of nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::Amount;
use crate::restart_rules::is_restartable_init_container;

/// Amounts by resource name; CPU in thousandths, everything else in whole units.
pub(crate) type Amounts = BTreeMap<String, i64>;

type Sums<'a> = BTreeMap<&'a str, Amount>;
type List = BTreeMap<String, Quantity>;

/// The pod's request: the sum of its containers, or the most that its init containers need at one time if that is more,
/// or the pod-level request; plus its overhead (`resource.PodRequests`).
///
/// # Errors
///
/// The quantity that cannot be parsed.
pub(crate) fn pod_requests(pod: &Pod) -> Result<Amounts, String> {
    sum(pod, false).map(amounts)
}

/// What an admitted pod holds: for each container the maximum of its request, its allocation and its actual resources.
/// A quantity that cannot be parsed counts as zero: it was rejected before.
pub(crate) fn held_by(pod: &Pod) -> Amounts {
    sum(pod, true).map(amounts).unwrap_or_default()
}

/// Parses the allocatable resources of a node.
pub(super) fn allocatable(list: Option<&List>) -> Amounts {
    let readable = list.into_iter().flatten().filter_map(|(name, quantity)| {
        let amount = Amount::try_from(quantity).ok()?;
        Some((name.as_str(), amount))
    });
    amounts(readable.collect())
}

/// Whether this is an extended resource: one that is not built into Kubernetes (`helper.IsExtendedResourceName`). The syntax of the
/// name is not checked.
pub fn is_extended_resource(resource: &str) -> bool {
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    !native && !resource.starts_with("requests.")
}

/// Whether the scheduler made a claim for this extended resource of the container (`isDRAExtendedResource`). A driver of dynamic
/// resources serves it then: the node does not count it, and no device plugin allocates it.
pub fn is_backed_by_claim(pod: &Pod, container: &str, resource: &str) -> bool {
    let status = pod.status.as_ref();
    let claim = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    let mut mappings = claim.into_iter().flat_map(|claim| &claim.request_mappings);
    mappings.any(|mapping| mapping.container_name == container && mapping.resource_name == resource)
}

fn amounts(sums: Sums<'_>) -> Amounts {
    let amount = |name: &str, amount: Amount| match name {
        "cpu" => amount.milli_value(),
        _ => amount.value(),
    };
    sums.into_iter()
        .map(|(name, sum)| (name.to_owned(), amount(name, sum)))
        .collect()
}

fn sum(pod: &Pod, held: bool) -> Result<Sums<'_>, String> {
    let Some(spec) = &pod.spec else {
        return Ok(Sums::new());
    };
    let mut total = Sums::new();
    for container in &spec.containers {
        add(&mut total, &of_container(pod, container, held)?);
    }
    // An init container runs beside the sidecars that were started before it.
    let (mut sidecars, mut most) = (Sums::new(), Sums::new());
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = is_restartable_init_container(container);
        let mut needed = of_container(pod, container, held && is_sidecar)?;
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
    let whole = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let asked = read(whole, "the pod")?;
    let has = pod
        .status
        .as_ref()
        .filter(|status| held && status.resources.is_some());
    let of_pod = match has {
        Some(status) => {
            let actual = status
                .resources
                .as_ref()
                .and_then(|actual| actual.requests.as_ref());
            effective(
                pod,
                &asked,
                actual,
                status.allocated_resources.as_ref(),
                "the pod",
            )?
        }
        None => asked.clone(),
    };
    for name in asked.keys() {
        if matches!(*name, "cpu" | "memory") || name.starts_with("hugepages-") {
            total.insert(name, of_pod.get(name).copied().unwrap_or_default());
        }
    }
    add(&mut total, &read(spec.overhead.as_ref(), "overhead")?);
    Ok(total)
}

fn of_container<'a>(pod: &'a Pod, container: &'a Container, held: bool) -> Result<Sums<'a>, String> {
    let resources = container.resources.as_ref();
    let asked = resources.and_then(|resources| resources.requests.as_ref());
    let asked = read(asked, &container.name)?;
    let status = container_status(pod, &container.name).filter(|_| held);
    let Some((status, actual)) = status.and_then(|status| Some((status, status.resources.as_ref()?))) else {
        return Ok(asked);
    };
    let allocated = status.allocated_resources.as_ref();
    effective(pod, &asked, actual.requests.as_ref(), allocated, &container.name)
}

/// The maximum of request, actual resources and allocation. The request of an infeasible resize is ignored
/// (`determineEffectiveRequests`).
fn effective<'a>(
    pod: &Pod,
    asked: &Sums<'a>,
    actual: Option<&'a List>,
    allocated: Option<&'a List>,
    of: &str,
) -> Result<Sums<'a>, String> {
    let mut most = match is_resize_infeasible(pod) {
        true => Sums::new(),
        false => asked.clone(),
    };
    raise(&mut most, &read(actual, of)?);
    raise(&mut most, &read(allocated, of)?);
    Ok(most)
}

fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let regular = status.container_statuses.iter().flatten();
    let mut all = regular.chain(status.init_container_statuses.iter().flatten());
    all.find(|status| status.name == name)
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let mut conditions = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .find(|condition| condition.type_ == "PodResizePending")
        .is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

fn read<'a>(list: Option<&'a List>, of: &str) -> Result<Sums<'a>, String> {
    let read = list.into_iter().flatten().map(|(name, quantity)| {
        let amount = Amount::try_from(quantity).map_err(|error| format!("{name} of {of}: {error}"))?;
        Ok((name.as_str(), amount))
    });
    read.collect()
}

fn add<'a>(sums: &mut Sums<'a>, more: &Sums<'a>) {
    for (name, amount) in more {
        let sum = sums.entry(name).or_default();
        *sum = *sum + *amount;
    }
}

fn raise<'a>(sums: &mut Sums<'a>, at_least: &Sums<'a>) {
    for (name, amount) in at_least {
        let sum = sums.entry(name).or_default();
        *sum = (*sum).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(spec: Value) -> Vec<(String, i64)> {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        pod_requests(&pod).unwrap().into_iter().collect()
    }

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    fn sidecar(name: &str, cpu: &str) -> Value {
        let mut sidecar = container(name, cpu);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    }

    #[test]
    fn containers_sidecars_init_containers_and_overhead_make_the_sum() {
        let cases = [
            (
                json!({"containers": [container("a", "100m"), container("b", "1")]}),
                1100,
            ),
            (
                json!({"containers": [container("a", "1")], "initContainers": [container("i", "2")]}),
                2000,
            ),
            // The sidecar that comes after an init container does not run beside it.
            (
                json!({
                    "containers": [container("a", "1")],
                    "initContainers": [sidecar("s", "500m"), container("i", "2"), sidecar("t", "1")],
                }),
                2500,
            ),
            (
                json!({"containers": [container("a", "1")], "resources": {"requests": {"cpu": "3"}}}),
                3000,
            ),
            (
                json!({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}}),
                1250,
            ),
        ];
        for (spec, cpu) in cases {
            assert_eq!(of(spec.clone()), [("cpu".to_owned(), cpu)], "{spec}");
        }
        assert_eq!(of(json!({"containers": [{"name": "a"}]})), []);
    }

    #[test]
    fn a_pod_that_runs_holds_what_it_was_given_until_it_has_less() {
        let mut pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [container("a", "1")]},
            "status": {"containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}},
            }]},
        }))
        .unwrap();
        assert_eq!(held_by(&pod).get("cpu"), Some(&3000));
        assert_eq!(pod_requests(&pod).unwrap().get("cpu"), Some(&1000));
        // What it asks for and will not get does not count.
        let condition = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        let status = pod.status.as_mut().unwrap();
        status.conditions = serde_json::from_value(condition).unwrap();
        pod.spec.as_mut().unwrap().containers = vec![serde_json::from_value(container("a", "9")).unwrap()];
        assert_eq!(held_by(&pod).get("cpu"), Some(&3000));
    }

    #[test]
    fn a_pod_with_resources_of_its_own_holds_what_it_has_of_them() {
        let mut pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [container("a", "1")], "resources": {"requests": {"cpu": "2", "memory": "1"}}},
            "status": {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2", "pods": "4"}},
        }))
        .unwrap();
        let held = |pod: &Pod| held_by(pod).into_iter().collect::<Vec<_>>();
        let [cpu, memory] = ["cpu", "memory"].map(str::to_owned);
        assert_eq!(held(&pod), [(cpu.clone(), 3000), (memory.clone(), 1)]);
        let condition = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        pod.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
        assert_eq!(held(&pod), [(cpu.clone(), 3000), (memory.clone(), 0)]);
        pod.status.as_mut().unwrap().resources = None;
        assert_eq!(held(&pod), [(cpu, 2000), (memory, 1)]);
    }

    #[test]
    fn an_amount_that_cannot_be_read_is_named() {
        let pod = json!({"spec": {"containers": [container("web", "much")]}});
        let error = pod_requests(&serde_json::from_value(pod).unwrap()).unwrap_err();
        assert!(error.contains("cpu of web"), "{error}");
    }

    #[test]
    fn extended_resources_are_told_by_their_names() {
        for (resource, extended) in [
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/batteries", false),
            ("example.com/gpu", true),
            ("requests.example.com/gpu", false),
        ] {
            assert_eq!(is_extended_resource(resource), extended, "{resource}");
        }
    }
}
