//! The cgroups of pods.

use std::io;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::cgroups::CgroupLimits;
use crate::runtime::AppliedResources;
use crate::{PodUid, Result};

/// Manages the cgroup of each pod, which contains the cgroups of its containers. It limits the pod as a whole, and
/// makes sure that no process of the pod is left. Answers to the kubelet's `cm.PodContainerManager`, and to the part of
/// its `QOSContainerManager` that depends on pods.
///
/// The sync of a pod calls [`exists`](Self::exists) and [`ensure_exists`](Self::ensure_exists). The end of a pod and
/// the clean-up of orphans call [`destroy`](Self::destroy). When a pod is resized, the runtime changes the limits, with
/// [`set_limits`](Self::set_limits) between the resizes of its containers.
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

    /// The present CPU and memory limits of the pod's cgroup (`GetPodCgroupConfig`); `None` if the agent created no cgroup.
    ///
    /// # Errors
    ///
    /// A file of the cgroup cannot be read.
    async fn limits(&self, pod: &Pod) -> io::Result<Option<CgroupLimits>> {
        let _ = pod;
        Ok(None)
    }

    /// Writes these limits of the pod's cgroup, and no others (`SetPodCgroupConfig`). Does nothing if the agent created no
    /// cgroup.
    ///
    /// # Errors
    ///
    /// The kernel refuses a limit.
    async fn set_limits(&self, pod: &Pod, limits: CgroupLimits) -> io::Result<()> {
        let _ = (pod, limits);
        Ok(())
    }

    /// The memory usage of the pod's cgroup in bytes, if it reports it (`GetPodCgroupMemoryUsage`).
    async fn memory_usage(&self, pod: &Pod) -> Option<u64> {
        let _ = pod;
        None
    }

    /// The limits of the pod's cgroup as the status of a running pod shows them, as far as they can be read.
    async fn resources(&self, pod: &Pod) -> Option<AppliedResources> {
        self.limits(pod).await.ok()??.resources()
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
