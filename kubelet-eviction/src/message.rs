//! The texts of an eviction.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::quantity::{Amount, Format, canonical};
use kubelet_core::stats::{ContainerStats, PodStats};
use kubelet_core::{PodExt, has_pod_level_resources};

use crate::observation::{Observations, Usages};
use crate::threshold::Threshold;
use crate::{Resource, usage};

/// `OffendingContainersKey`
const OFFENDING_CONTAINERS: &str = "offending_containers";
/// `OffendingContainersUsageKey`
const OFFENDING_CONTAINERS_USAGE: &str = "offending_containers_usage";
/// `OffendingPodKey`
const OFFENDING_POD: &str = "offending_pod";
/// `OffendingPodUsageKey`
const OFFENDING_POD_USAGE: &str = "offending_pod_usage";
/// `StarvedResourceKey`
const STARVED_RESOURCE: &str = "starved_resource";

/// A message and the annotations of the event.
pub(crate) type Texts = (String, BTreeMap<String, String>);

/// Why the pod is evicted: the starved resource, what is left of it, and which containers use more than they request
/// (`evictionMessage`). The first of the thresholds is named.
pub(crate) fn of_starvation(
    resource: Resource,
    pod: &Pod,
    usages: &Usages<'_>,
    thresholds: &[Threshold],
    observations: &Observations,
) -> Texts {
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some((quantity, available)) = threshold_met(resource, thresholds, observations) {
        message += &format!("Threshold quantity: {quantity}, available: {available}. ");
    }
    let mut annotations = BTreeMap::new();
    let Some(stats) = usages.of(pod.uid_str()) else {
        return (message, annotations);
    };
    let mut annotate = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    if let Some((used, request)) = of_pod(resource, pod, stats) {
        let name = pod.key().name;
        message += &larger_consumption("Pod", &name, &used, &request, resource);
        annotate(OFFENDING_POD, name.to_string());
        annotate(OFFENDING_POD_USAGE, used);
    }
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    for measured in stats.containers.iter().flatten() {
        let Some(container) = container_named(pod, &measured.name) else {
            continue;
        };
        let Some((used, request)) = above_request(resource, container, measured) else {
            continue;
        };
        message += &larger_consumption("Container", &container.name, &used, &request, resource);
        names.push(container.name.as_str());
        usages.push(used);
    }
    annotate(OFFENDING_CONTAINERS, names.join(","));
    annotate(OFFENDING_CONTAINERS_USAGE, usages.join(","));
    annotate(STARVED_RESOURCE, resource.as_str().to_owned());
    (message, annotations)
}

fn larger_consumption(what: &str, name: &str, used: &str, request: &str, of: Resource) -> String {
    format!("{what} {name} was using {used}, request is {request}, has larger consumption of {of}. ")
}

/// `getThresholdMetInfo`
fn threshold_met(
    resource: Resource,
    thresholds: &[Threshold],
    observations: &Observations,
) -> Option<(String, String)> {
    let mut of_resource = thresholds
        .iter()
        .filter(|threshold| threshold.signal.resource() == resource);
    of_resource.find_map(|threshold| {
        let observed = observations.get(&threshold.signal)?;
        Some((threshold.value.text(observed.capacity), observed.available_text()))
    })
}

/// Usage and request of a pod that has a memory request of its own.
fn of_pod(resource: Resource, pod: &Pod, stats: &PodStats) -> Option<(String, String)> {
    if resource != Resource::Memory || !has_pod_level_resources(pod) {
        return None;
    }
    let requests = pod.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    let request = requests.get(resource.as_str())?;
    let used = usage::memory(Some(stats.memory.as_ref()?));
    Some((used.write(Format::BinarySi), canonical(request)))
}

/// Containers, then init containers. Ephemeral containers have no requests, and are not blamed.
fn container_named<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let mut containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    containers.find(|container| container.name == name)
}

/// Usage and request of a container that uses more than it requests.
fn above_request(
    resource: Resource,
    container: &Container,
    measured: &ContainerStats,
) -> Option<(String, String)> {
    let used = match resource {
        Resource::EphemeralStorage => {
            let (rootfs, logs) = (measured.rootfs.as_ref()?, measured.logs.as_ref()?);
            rootfs.used_bytes?.saturating_add(logs.used_bytes?)
        }
        Resource::Memory => measured.memory.as_ref()?.working_set_bytes?,
        Resource::Inodes | Resource::Pids => return None,
    };
    let used = usage::amount(Some(used));
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let request = requests.and_then(|requests| requests.get(resource.as_str()));
    let requested = request
        .and_then(|request| Amount::try_from(request).ok())
        .unwrap_or_default();
    (used > requested).then(|| {
        let request = request.map_or_else(|| "0".to_owned(), canonical);
        (used.write(Format::BinarySi), request)
    })
}
