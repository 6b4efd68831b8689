//! Which containers have CPUs for themselves.

use k8s_openapi::api::core::v1::{Container, Pod};

/// Knows which containers have CPUs that no other container may use. Their CPU time is not limited by a quota
/// (`DisableCPUQuotaWithExclusiveCPUs`).
///
/// Answers to `PodHasExclusiveCPUs` and `ContainerHasExclusiveCPUs` of the kubelet's container manager.
pub trait ExclusiveCpus: Send + Sync {
    /// Whether the container, regular or init, has CPUs of its own.
    fn container_has_exclusive_cpus(&self, pod: &Pod, container: &Container) -> bool;

    /// Whether the cgroup of the pod gets no quota. By default: if one of its containers has CPUs of its own.
    fn pod_has_exclusive_cpus(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let init = spec.init_containers.iter().flatten();
        init.chain(&spec.containers)
            .any(|container| self.container_has_exclusive_cpus(pod, container))
    }
}

/// All containers share all CPUs: the CPU manager has the policy `none`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExclusiveCpus;

impl ExclusiveCpus for NoExclusiveCpus {
    fn container_has_exclusive_cpus(&self, _: &Pod, _: &Container) -> bool {
        false
    }
}
