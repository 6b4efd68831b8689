//! The cgroups of pods.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::ContainerResources;
use crate::{PodUid, Result};

/// Looks after the cgroup of each pod, in which its containers are made: so that a pod as a whole has limits, and nothing
/// is left of it. Answers to the kubelet's `cm.PodContainerManager`, and to what of its `QOSContainerManager` follows from
/// the pods.
///
/// A pod's sync calls [`exists`](Self::exists) and [`ensure_exists`](Self::ensure_exists); the end of a pod and the clean-up
/// of orphans call [`destroy`](Self::destroy). The limits of a pod that is resized are the runtime's to change, between the
/// resizes of its containers.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait PodContainerManager: Send + Sync {
    /// Whether the pod's cgroup is there (`Exists`).
    async fn exists(&self, pod: &Pod) -> bool;

    /// Makes the pod's cgroup, with the limits of its spec, if it is not there (`EnsureExists`). One that is there keeps
    /// its limits.
    async fn ensure_exists(&self, pod: &Pod) -> Result<()>;

    /// Kills what still runs in the pod's cgroup, and removes it (`Destroy`). Nothing is to do where there is none.
    async fn destroy(&self, uid: &PodUid) -> Result<()>;

    /// Gives what still runs in the pod's cgroup the least CPU: the pod is over, and its volumes are not unmounted yet
    /// (`ReduceCPULimits`).
    async fn reduce_cpu_limits(&self, uid: &PodUid) -> Result<()>;

    /// What the kernel holds the pod as a whole to, as far as that can be read (`GetPodCgroupConfig`); by default nothing is
    /// known. A pod that runs shows it in its status.
    async fn resources(&self, pod: &Pod) -> Option<ContainerResources> {
        let _ = pod;
        None
    }

    /// The pods that have a cgroup, in no order (`GetAllPodsFromCgroups`).
    async fn pods(&self) -> Result<Vec<PodUid>>;
}

/// Pods have no cgroups of the agent's making: where `cgroupsPerQOS` is off, or the runtime has none. Each pod's counts as
/// there (`podContainerManagerNoop`).
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
