//! The metrics of the managers. Without a recorder they cost nothing.

use std::time::Duration;

use ::metrics::{counter, gauge, histogram};

/// What was aligned (label `scope`).
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    Container,
    Pod,
}

/// To what it was aligned (label `boundary`).
#[derive(Clone, Copy)]
pub(crate) enum Boundary {
    PhysicalCpu,
    UncoreCache,
    NumaNode,
}

#[derive(Clone, Copy)]
pub(crate) enum Aligned {
    Succeeded,
    Failed,
}

/// Label `resource_name`.
#[derive(Clone, Copy)]
pub(crate) enum Resource {
    Cpu,
    Memory,
}

/// Label `assignment_type`.
#[derive(Clone, Copy)]
pub(crate) enum Assignment {
    NodeExclusive,
    PodExclusive,
    PodShared,
}

/// `container_aligned_compute_resources_count` and `…_failure_count`. Adding zero makes the series visible.
pub(crate) fn add_aligned(scope: Scope, boundary: Boundary, aligned: Aligned, count: u64) {
    let scope = match scope {
        Scope::Container => "container",
        Scope::Pod => "pod",
    };
    let boundary = match boundary {
        Boundary::PhysicalCpu => "physical_cpu",
        Boundary::UncoreCache => "uncore_cache",
        Boundary::NumaNode => "numa_node",
    };
    let counter = match aligned {
        Aligned::Succeeded => counter!(
            "kubelet_container_aligned_compute_resources_count",
            "scope" => scope, "boundary" => boundary
        ),
        Aligned::Failed => counter!(
            "kubelet_container_aligned_compute_resources_failure_count",
            "scope" => scope, "boundary" => boundary
        ),
    };
    counter.increment(count);
}

pub(crate) fn count_cpu_pinning() {
    counter!("kubelet_cpu_manager_pinning_requests_total").increment(1);
}

pub(crate) fn count_cpu_error(of_pod: bool) {
    counter!("kubelet_cpu_manager_pinning_errors_total").increment(1);
    count_error(Resource::Cpu, of_pod);
}

pub(crate) fn count_memory_pinning() {
    counter!("kubelet_memory_manager_pinning_requests_total").increment(1);
}

pub(crate) fn count_memory_error(of_pod: bool) {
    counter!("kubelet_memory_manager_pinning_errors_total").increment(1);
    count_error(Resource::Memory, of_pod);
}

/// The CPUs of the shared pool that are not reserved, and those that are exclusive.
pub(crate) fn set_cpus(shared: usize, exclusive: usize) {
    gauge!("kubelet_cpu_manager_shared_pool_size_millicores").set((shared * 1000) as f64);
    gauge!("kubelet_cpu_manager_exclusive_cpu_allocation_count").set(exclusive as f64);
}

pub(crate) fn set_cpus_of_node(node: usize, cpus: usize) {
    gauge!("kubelet_cpu_manager_allocation_per_numa", "numa_node" => node.to_string()).set(cpus as f64);
}

pub(crate) fn count_admission(took: Duration) {
    counter!("kubelet_topology_manager_admission_requests_total").increment(1);
    histogram!("kubelet_topology_manager_admission_duration_ms").record(took.as_millis() as f64);
}

pub(crate) fn count_admission_error() {
    counter!("kubelet_topology_manager_admission_errors_total").increment(1);
}

/// `resource_manager_allocations_total`: from the node's resources, or those of a pod.
pub(crate) fn count_allocation(resource: Resource, of_pod: bool) {
    counter!(
        "resource_manager_allocations_total",
        "resource_name" => name(resource), "source" => source(of_pod)
    )
    .increment(1);
}

pub(crate) fn count_assignment(resource: Resource, assignment: Assignment) {
    let assignment = match assignment {
        Assignment::NodeExclusive => "node_exclusive",
        Assignment::PodExclusive => "pod_exclusive",
        Assignment::PodShared => "pod_shared",
    };
    counter!(
        "resource_manager_container_assignments",
        "resource_name" => name(resource), "assignment_type" => assignment
    )
    .increment(1);
}

fn count_error(resource: Resource, of_pod: bool) {
    counter!(
        "resource_manager_allocation_errors_total",
        "resource_name" => name(resource), "source" => source(of_pod)
    )
    .increment(1);
}

fn name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu",
        Resource::Memory => "memory",
    }
}

fn source(of_pod: bool) -> &'static str {
    if of_pod { "pod" } else { "node" }
}
