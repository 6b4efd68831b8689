//! CPU and memory in the API status: per container, and for the pod as a whole.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus as ApiContainerStatus, Pod, PodSpec, PodStatus as ApiPodStatus,
    ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{AppliedResources, ContainerState, ContainerStatus};

use crate::quantity;
use crate::status_ext::{is_running, phase};

type ResourceList = BTreeMap<String, Quantity>;

/// The kernel's minimum of CPU shares (`cm.MinShares`): requests at or below it look the same.
const MIN_SHARES: i64 = 2;
/// The kernel's minimum CPU limit, in thousandths (`cm.MinMilliCPULimit`).
const MIN_MILLI_CPU_LIMIT: i64 = 10;

/// A container's CPU and memory: what the runtime applies, or else the reported values, or else the allocation. A
/// container that is not running shows its allocation.
pub(crate) fn container_resources(
    allocated: &Container,
    status: &ContainerStatus,
    previous: Option<&ApiContainerStatus>,
) -> ResourceRequirements {
    let mut resources = allocated.resources.clone().unwrap_or_default();
    if status.state != ContainerState::Running {
        return resources;
    }
    let applied = status.resources.as_ref();
    let shown = previous
        .filter(|previous| {
            is_running(&previous.state) && previous.container_id.as_deref() == Some(&status.id.to_string())
        })
        .and_then(|previous| previous.resources.as_ref());

    if let Some(limits) = &mut resources.limits {
        let shown = shown.and_then(|shown| shown.limits.as_ref());
        let cpu = applied.and_then(|applied| applied.cpu_limit.as_ref());
        take(limits, "cpu", cpu, MIN_MILLI_CPU_LIMIT, shown);
        let memory = applied.and_then(|applied| applied.memory_limit.as_ref());
        take(limits, "memory", memory, 0, shown);
    }
    if let Some(requests) = &mut resources.requests {
        let shown = shown.and_then(|shown| shown.requests.as_ref());
        let cpu = applied.and_then(|applied| applied.cpu_request.as_ref());
        take(requests, "cpu", cpu, MIN_SHARES, shown);
        // A request that the runtime was given keeps the spelling of the spec.
        let memory = applied.and_then(|applied| applied.memory_request.as_ref());
        let allocated = requests.get("memory");
        let is_allocated =
            |applied| allocated.is_some_and(|allocated| quantity::compare(applied, allocated).is_eq());
        if !memory.is_some_and(is_allocated) {
            take(requests, "memory", memory, 0, shown);
        }
    }
    resources
}

/// Sets `name` to the applied value, or else to the reported one. If both the allocation and the applied value are at
/// or below `floor`, the allocation stays, since the kernel cannot represent it.
fn take(
    list: &mut ResourceList,
    name: &str,
    applied: Option<&Quantity>,
    floor: i64,
    shown: Option<&ResourceList>,
) {
    let value = match applied {
        Some(applied) => {
            let allocated = list.get(name).map_or(0, quantity::milli_value);
            let held = floor == 0 || quantity::milli_value(applied) > floor || allocated > floor;
            held.then_some(applied)
        }
        None => shown.and_then(|shown| shown.get(name)),
    };
    if let Some(value) = value {
        list.insert(name.to_owned(), value.clone());
    }
}

/// The pod-level CPU and memory (`convertToAPIPodLevelResourcesStatus`): a running pod shows the limits of its cgroup,
/// or else the reported values; any other pod shows its allocation.
pub(crate) fn pod_resources(
    pod: &Pod,
    applied: Option<&AppliedResources>,
    previous: &ApiPodStatus,
) -> ResourceRequirements {
    let Some(spec) = &pod.spec else {
        return ResourceRequirements::default();
    };
    let mut resources = spec.resources.clone().unwrap_or_default();
    let is_running = |status: &ApiPodStatus| phase(status) == "Running";
    if !pod.status.as_ref().is_some_and(is_running) {
        resources.requests = non_empty(pod_requests(spec));
        resources.limits = non_empty(pod_limits(spec));
        return resources;
    }
    let mut requests = resources.requests.take().unwrap_or_default();
    let mut limits = resources.limits.take().unwrap_or_default();
    if !requests.contains_key("memory")
        && let Some(memory) = pod_requests(spec).remove("memory")
    {
        requests.insert("memory".to_owned(), memory);
    }
    let shown = previous.resources.as_ref().filter(|_| is_running(previous));
    let (shown_requests, shown_limits) = (
        shown.and_then(|shown| shown.requests.as_ref()),
        shown.and_then(|shown| shown.limits.as_ref()),
    );
    let cpu_request = applied.and_then(|applied| applied.cpu_request.as_ref());
    take(&mut requests, "cpu", cpu_request, MIN_SHARES, shown_requests);
    take(&mut requests, "memory", None, 0, shown_requests);
    let cpu_limit = applied.and_then(|applied| applied.cpu_limit.as_ref());
    take(&mut limits, "cpu", cpu_limit, MIN_MILLI_CPU_LIMIT, shown_limits);
    let memory_limit = applied.and_then(|applied| applied.memory_limit.as_ref());
    take(&mut limits, "memory", memory_limit, 0, shown_limits);
    resources.requests = non_empty(requests);
    resources.limits = non_empty(limits);
    resources
}

/// The pod's allocation (`resourcehelper.PodRequests`).
pub(crate) fn allocated_resources(pod: &Pod) -> Option<ResourceList> {
    non_empty(pod_requests(pod.spec.as_ref()?))
}

fn pod_requests(spec: &PodSpec) -> ResourceList {
    let mut requests = total(spec, |resources| resources.requests.as_ref());
    let of_pod = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    overlay(&mut requests, of_pod);
    for (name, overhead) in spec.overhead.iter().flatten() {
        add(&mut requests, name, overhead);
    }
    requests
}

fn pod_limits(spec: &PodSpec) -> ResourceList {
    let mut limits = total(spec, |resources| resources.limits.as_ref());
    let of_pod = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.limits.as_ref());
    overlay(&mut limits, of_pod);
    // Overhead increases an existing limit, and does not create one.
    for (name, overhead) in spec.overhead.iter().flatten() {
        if let Some(limit) = limits.get_mut(name)
            && quantity::is_positive(limit)
        {
            *limit = quantity::add(limit, overhead);
        }
    }
    limits
}

/// The maximum that the pod's containers use at one time: all regular ones with all sidecars, or an init container with
/// the sidecars before it.
fn total(spec: &PodSpec, of: impl Fn(&ResourceRequirements) -> Option<&ResourceList>) -> ResourceList {
    let list = |container: &Container| {
        container
            .resources
            .as_ref()
            .and_then(&of)
            .cloned()
            .unwrap_or_default()
    };
    let sum = |mut sum: ResourceList, list: &ResourceList| {
        for (name, quantity) in list {
            add(&mut sum, name, quantity);
        }
        sum
    };
    let mut running = spec
        .containers
        .iter()
        .fold(ResourceList::new(), |total, container| {
            sum(total, &list(container))
        });
    let mut sidecars = ResourceList::new();
    let mut initializing = ResourceList::new();
    for container in spec.init_containers.iter().flatten() {
        let own = list(container);
        let now = sum(own.clone(), &sidecars);
        if is_restartable_init_container(container) {
            running = sum(running, &own);
            sidecars = sum(sidecars, &own);
        }
        raise(&mut initializing, now);
    }
    raise(&mut running, initializing);
    running
}

fn add(list: &mut ResourceList, name: &str, quantity: &Quantity) {
    match list.get_mut(name) {
        Some(value) => *value = quantity::add(value, quantity),
        None => {
            list.insert(name.to_owned(), quantity.clone());
        }
    }
}

fn raise(list: &mut ResourceList, other: ResourceList) {
    for (name, quantity) in other {
        match list.get_mut(&name) {
            Some(value) if quantity::compare(&quantity, value).is_le() => {}
            Some(value) => *value = quantity,
            None => {
                list.insert(name, quantity);
            }
        }
    }
}

/// Pod-level values replace the sum, for the resources that can have them.
fn overlay(list: &mut ResourceList, of_pod: Option<&ResourceList>) {
    for (name, quantity) in of_pod.into_iter().flatten() {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            list.insert(name.clone(), quantity.clone());
        }
    }
}

fn non_empty(list: ResourceList) -> Option<ResourceList> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubelet_core::ContainerId;
    use kubelet_core::runtime::AppliedResources;
    use serde_json::{Value, json};

    fn spec(spec: Value) -> PodSpec {
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn totals() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let table = [
            (json!({"containers": [{"name": "a"}]}), json!({})),
            (
                json!({"containers": [{"name": "a", "resources": requests("200m")}, {"name": "b", "resources": requests("300m")}]}),
                json!({"cpu": "500m"}),
            ),
            // The init container needs more than all that comes after it.
            (
                json!({"initContainers": [{"name": "i", "resources": requests("2")}], "containers": [{"name": "a", "resources": requests("1")}]}),
                json!({"cpu": "2"}),
            ),
            // A sidecar runs beside the init containers after it and beside the regular ones.
            (
                json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "resources": requests("1")}, {"name": "i", "resources": requests("2")}],
                       "containers": [{"name": "a", "resources": requests("1")}]}),
                json!({"cpu": "3"}),
            ),
            (
                json!({"resources": requests("5"), "overhead": {"cpu": "100m"}, "containers": [{"name": "a", "resources": requests("1")}]}),
                json!({"cpu": "5100m"}),
            ),
        ];
        for (input, expected) in table {
            assert_eq!(json!(pod_requests(&spec(input.clone()))), expected, "{input}");
        }
        let limits = pod_limits(&spec(json!({"overhead": {"cpu": "1", "memory": "1Gi"},
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]})));
        assert_eq!(json!(limits), json!({"cpu": "2"}));
    }

    #[test]
    fn a_running_container_shows_what_the_runtime_applies_else_what_it_showed() {
        let container: Container = serde_json::from_value(json!({"name": "a", "resources":
            {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1m", "memory": "32Mi"}}}))
        .unwrap();
        let mut status = ContainerStatus::new(ContainerId::new("fake", "x"), "a", ContainerState::Running);
        status.resources = Some(AppliedResources {
            cpu_limit: Some(Quantity("2".to_owned())),
            // The kernel's floor: the allocated 1m stays.
            cpu_request: Some(Quantity("2m".to_owned())),
            ..AppliedResources::default()
        });
        let previous: ApiContainerStatus =
            serde_json::from_value(json!({"name": "a", "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "containerID": "fake://x", "state": {"running": {}},
            "resources": {"limits": {"memory": "48Mi"}, "requests": {"memory": "16Mi"}}}))
            .unwrap();
        let shown = container_resources(&container, &status, Some(&previous));
        assert_eq!(
            json!(shown),
            json!({"limits": {"cpu": "2", "memory": "48Mi"}, "requests": {"cpu": "1m", "memory": "16Mi"}})
        );
        // What was given is shown, whatever was shown before, as the spec spells it.
        let allocated = "33554432";
        for (given, expected) in [("48Mi", "48Mi"), ("32Mi", allocated)] {
            let mut container = container.clone();
            let requests = container.resources.as_mut().unwrap().requests.as_mut().unwrap();
            requests.insert("memory".to_owned(), Quantity(allocated.to_owned()));
            status.resources.as_mut().unwrap().memory_request = Some(Quantity(given.to_owned()));
            let shown = container_resources(&container, &status, Some(&previous));
            assert_eq!(shown.requests.unwrap()["memory"].0, expected);
        }
        status.state = ContainerState::Exited;
        let shown = container_resources(&container, &status, Some(&previous));
        assert_eq!(json!(shown), json!(container.resources));
    }

    #[test]
    fn a_running_pod_shows_what_its_cgroup_holds_else_what_it_showed() {
        let quantity = |text: &str| (!text.is_empty()).then(|| Quantity(text.to_owned()));
        // The pod's and its container's resources, what its cgroup holds (CPU requested, CPU and memory at most), what was
        // shown, what is.
        let unlimited = "9007199254740988Ki";
        let cases = [
            (
                json!({}),
                json!({}),
                ["2m", "", unlimited],
                json!({}),
                json!({"limits": {"memory": unlimited}}),
            ),
            (json!({}), json!({}), ["2m", "", ""], json!({}), json!({})),
            (
                json!({}),
                json!({"requests": {"cpu": "100m", "memory": "1Mi"}}),
                ["102m", "", ""],
                json!({}),
                json!({"requests": {"cpu": "102m", "memory": "1Mi"}}),
            ),
            // What the kernel cannot hold stays as it was allocated.
            (
                json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}}),
                json!({}),
                ["2m", "10m", ""],
                json!({}),
                json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}}),
            ),
            (
                json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "1Mi"}}),
                json!({}),
                ["150m", "300m", "2Mi"],
                json!({"requests": {"memory": "7Mi"}}),
                json!({"requests": {"cpu": "150m", "memory": "7Mi"}, "limits": {"cpu": "300m", "memory": "2Mi"}}),
            ),
            // Nothing is known of its cgroup.
            (
                json!({"limits": {"cpu": "200m"}}),
                json!({}),
                ["", "", ""],
                json!({"limits": {"cpu": "300m", "memory": unlimited}}),
                json!({"limits": {"cpu": "300m", "memory": unlimited}}),
            ),
        ];
        for (of_pod, of_container, [cpu_request, cpu_limit, memory_limit], before, expected) in cases {
            let spec = json!({"resources": of_pod, "containers": [{"name": "c", "resources": of_container}]});
            let pod: Pod =
                serde_json::from_value(json!({"spec": spec, "status": {"phase": "Running"}})).unwrap();
            let previous = serde_json::from_value(json!({"phase": "Running", "resources": before})).unwrap();
            let applied = AppliedResources {
                cpu_request: quantity(cpu_request),
                cpu_limit: quantity(cpu_limit),
                memory_limit: quantity(memory_limit),
                memory_request: None,
            };
            let shown = pod_resources(&pod, Some(&applied), &previous);
            assert_eq!(serde_json::to_value(shown).unwrap(), expected, "{spec}");
        }
    }
}
