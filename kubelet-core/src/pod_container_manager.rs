//! The cgroups of pods.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::ContainerResources;
use crate::{PodUid, Result};

/// Manages the cgroup of each pod, which contains the cgroups of its containers. It limits the pod as a whole, and
/// makes sure that no process of the pod is left. Answers to the kubelet's `cm.PodContainerManager`, and to the part of
/// its `QOSContainerManager` that depends on pods.
///
/// The sync of a pod calls [`exists`](Self::exists) and [`ensure_exists`](Self::ensure_exists). The end of a pod and
/// the clean-up of orphans call [`destroy`](Self::destroy). When a pod is resized, the runtime changes the limits,
/// between the resizes of its containers.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait PodContainerManager: Send + Sync {
    /// Whether the pod's cgroup exists (`Exists`).
    async fn exists(&self, pod: &Pod) -> bool;

    /// Creates the pod's cgroup with the limits of its spec, if it does not exist (`EnsureExists`). An existing cgroup
    /// keeps its limits.
    async fn ensure_exists(&self, pod: &Pod) -> Result<()>;

    /// Kills all processes in the pod's cgroup, and removes it (`Destroy`). Does nothing if there is none.
    async fn destroy(&self, uid: &PodUid) -> Result<()>;

    /// Reduces the CPU of the pod's cgroup to the minimum: the pod has ended, but its volumes are still mounted
    /// (`ReduceCPULimits`).
    async fn reduce_cpu_limits(&self, uid: &PodUid) -> Result<()>;

    /// The limits of the pod's cgroup, as far as they can be read (`GetPodCgroupConfig`). The status of a running pod
    /// shows them. By default, `None`.
    async fn resources(&self, pod: &Pod) -> Option<ContainerResources> {
        let _ = pod;
        None
    }

    /// The pods that have a cgroup, in any order (`GetAllPodsFromCgroups`).
    async fn pods(&self) -> Result<Vec<PodUid>>;
}

/// The agent creates no cgroups for pods: `cgroupsPerQOS` is off, or the runtime has none. Every pod's cgroup counts as
/// existing (`podContainerManagerNoop`).
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPodContainers;

#[async_trait]
impl PodContainerManager for NoPodContainers {
    async fn exists(&self, _: &Pod) -> bool {
        true
    }

    async fn ensure_exists(&self, _: &Pod) -> Result<()> {
        Ok(())
    }

    async fn destroy(&self, _: &PodUid) -> Result<()> {
        Ok(())
    }

    async fn reduce_cpu_limits(&self, _: &PodUid) -> Result<()> {
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<PodUid>> {
        Ok(Vec::new())
    }
}
