//! Which containers get no CPU quota, for the cgroups of pods and for resizes.

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::cgroups::ExclusiveCpus;
use kubelet_core::has_pod_level_resources;

use super::ResourceManagerHandle;

impl ExclusiveCpus for ResourceManagerHandle {
    fn container_has_exclusive_cpus(&self, pod: &Pod, container: &Container) -> bool {
        self.has_exclusive_cpus(pod, container)
    }

    /// The containers of a pod with pod-level resources may share the rest of its CPUs. Its quota limits those, so all containers
    /// must have CPUs of their own (`PodHasExclusiveCPUs`).
    fn pod_has_exclusive_cpus(&self, pod: &Pod) -> bool {
        let Some(spec) = &pod.spec else { return false };
        let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        match has_pod_level_resources(pod) {
            true => containers.all(|container| self.has_exclusive_cpus(pod, container)),
            false => containers.any(|container| self.has_exclusive_cpus(pod, container)),
        }
    }
}
