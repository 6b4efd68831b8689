//! What containers request, as the managers see it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;
use kubelet_core::{QosClass, qos_class};

use crate::{Error, Result};

/// Which of the kubelet's gates are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gates {
    /// `CPUManagerPolicyAlphaOptions`, off by default.
    pub cpu_policy_alpha_options: bool,
    /// `CPUManagerPolicyBetaOptions`, on by default.
    pub cpu_policy_beta_options: bool,
    /// `PodLevelResources`, on by default.
    pub pod_level_resources: bool,
    /// `PodLevelResourceManagers`, off by default. It also decides on the format of the state files.
    pub pod_level_resource_managers: bool,
    /// `DisableCPUQuotaWithExclusiveCPUs`, on by default.
    pub disable_cpu_quota_with_exclusive_cpus: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            cpu_policy_alpha_options: false,
            cpu_policy_beta_options: true,
            pod_level_resources: true,
            pod_level_resource_managers: false,
            disable_cpu_quota_with_exclusive_cpus: true,
        }
    }
}

impl Gates {
    /// Whether the managers allocate for this pod as a whole.
    pub(crate) fn allocate_for_pod(self, pod: &Pod) -> bool {
        self.pod_level_resource_managers && kubelet_core::has_pod_level_resources(pod)
    }

    /// Whether the managers leave this pod alone: it has pod-level resources, which they are not to manage.
    pub(crate) fn ignore_pod(self, pod: &Pod) -> bool {
        !(self.pod_level_resource_managers && self.pod_level_resources)
            && kubelet_core::has_pod_level_resources(pod)
    }
}

/// The whole CPUs that the container gets for itself; zero if it shares CPUs (`guaranteedCPUs`).
pub(crate) fn exclusive_cpus(gates: Gates, pod: &Pod, container: &Container) -> usize {
    if qos_class(pod) != QosClass::Guaranteed {
        return 0;
    }
    if gates.allocate_for_pod(pod) && !is_guaranteed(container) {
        return 0;
    }
    whole_cpus(request(container.resources.as_ref(), "cpu"))
}

/// The whole CPUs that the pod needs at one time (`podGuaranteedCPUs`).
pub(crate) fn exclusive_cpus_of_pod(gates: Gates, pod: &Pod) -> usize {
    if gates.allocate_for_pod(pod) {
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        return match qos_class(pod) {
            QosClass::Guaranteed => whole_cpus(request(of_pod, "cpu")),
            _ => 0,
        };
    }
    // An init container runs beside the sidecars that were started before it.
    let (mut sidecars, mut most) = (0, 0);
    for container in init_containers(pod) {
        let cpus = exclusive_cpus(gates, pod, container);
        if is_sidecar(container) {
            sidecars += cpus;
        } else {
            most = most.max(sidecars + cpus);
        }
    }
    let cpus = app_containers(pod).map(|container| exclusive_cpus(gates, pod, container));
    most.max(sidecars + cpus.sum::<usize>())
}

/// Bytes of memory and of huge pages, by the name of the resource.
pub(crate) type MemoryRequests = BTreeMap<String, u64>;

/// The memory that the container requests; empty if it shares that of its pod (`getContainerRequestedResources`).
pub(crate) fn container_memory(gates: Gates, pod: &Pod, container: &Container) -> Result<MemoryRequests> {
    if gates.allocate_for_pod(pod) && !is_guaranteed(container) {
        return Ok(MemoryRequests::new());
    }
    memory_of(container.resources.as_ref())
}

/// The memory that the pod needs at one time (`getPodRequestedResources`).
pub(crate) fn pod_memory(gates: Gates, pod: &Pod) -> Result<MemoryRequests> {
    if gates.allocate_for_pod(pod) {
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let mut requests = memory_of(of_pod)?;
        requests.retain(|_, size| *size > 0);
        return Ok(requests);
    }
    let (mut sidecars, mut most) = (MemoryRequests::new(), MemoryRequests::new());
    for container in init_containers(pod) {
        for (resource, size) in container_memory(gates, pod, container)? {
            let beside = sidecars.entry(resource.clone()).or_default();
            if is_sidecar(container) {
                *beside += size;
            } else {
                let most = most.entry(resource).or_default();
                *most = (*most).max(*beside + size);
            }
        }
    }
    // A resource that only init containers request does not count.
    let mut total = MemoryRequests::new();
    for container in app_containers(pod) {
        for (resource, size) in container_memory(gates, pod, container)? {
            *total.entry(resource).or_default() += size;
        }
    }
    for (resource, size) in &mut total {
        *size += sidecars.get(resource).copied().unwrap_or_default();
        *size = (*size).max(most.get(resource).copied().unwrap_or_default());
    }
    Ok(total)
}

/// Whether the container has limits for CPU and memory that equal its requests (`IsContainerEquivalentQOSGuaranteed`).
pub(crate) fn is_guaranteed(container: &Container) -> bool {
    let resources = container.resources.as_ref();
    ["cpu", "memory"].into_iter().all(|resource| {
        let request = request(resources, resource);
        let limit = amount(
            resources.and_then(|resources| resources.limits.as_ref()),
            resource,
        );
        !request.is_zero() && request == limit
    })
}

/// Whether the limit for CPU has no fraction.
pub(crate) fn has_whole_cpu_limit(container: &Container) -> bool {
    let resources = container.resources.as_ref();
    amount(resources.and_then(|resources| resources.limits.as_ref()), "cpu").is_whole()
}

/// The container's limit for a resource of whole units, e.g. devices.
pub(crate) fn limit_of(container: &Container, resource: &str) -> usize {
    let resources = container.resources.as_ref();
    let limit = amount(
        resources.and_then(|resources| resources.limits.as_ref()),
        resource,
    );
    usize::try_from(limit.value()).unwrap_or_default()
}

/// Whether the container starts before the others and runs beside them (`IsRestartableInitContainer`).
pub(crate) use kubelet_core::restart_rules::is_restartable_init_container as is_sidecar;

/// Whether it is an init container of the pod that ends before the next one starts (`isRegularInitContainer`).
pub(crate) fn ends_before_next(pod: &Pod, container: &Container) -> bool {
    init_containers(pod)
        .find(|init| init.name == container.name)
        .is_some_and(|init| !is_sidecar(init))
}

pub(crate) fn init_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten())
}

pub(crate) fn app_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| &spec.containers)
}

/// Whether the resource is memory or huge pages.
pub(crate) fn is_memory(resource: &str) -> bool {
    resource == "memory" || resource.starts_with("hugepages-")
}

fn memory_of(resources: Option<&ResourceRequirements>) -> Result<MemoryRequests> {
    let requests = resources.and_then(|resources| resources.requests.as_ref());
    let names = requests.iter().flat_map(|requests| requests.keys());
    names
        .filter(|name| is_memory(name))
        .map(|name| {
            let size = amount(requests, name);
            match u64::try_from(size.value()) {
                Ok(bytes) if size.is_whole() => Ok((name.clone(), bytes)),
                _ => Err(Error::Allocation(
                    "[memorymanager] failed to represent quantity as int64".to_owned(),
                )),
            }
        })
        .collect()
}

/// The amount in whole CPUs, zero if it has a fraction.
fn whole_cpus(amount: Amount) -> usize {
    match amount.is_whole() {
        true => usize::try_from(amount.value()).unwrap_or_default(),
        false => 0,
    }
}

fn request(resources: Option<&ResourceRequirements>, name: &str) -> Amount {
    amount(resources.and_then(|resources| resources.requests.as_ref()), name)
}

/// A quantity that cannot be parsed counts as unset.
fn amount(list: Option<&BTreeMap<String, Quantity>>, name: &str) -> Amount {
    let quantity = list.and_then(|list| list.get(name));
    quantity
        .and_then(|quantity| Amount::try_from(quantity).ok())
        .unwrap_or_default()
}
