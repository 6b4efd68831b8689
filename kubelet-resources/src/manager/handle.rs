//! The handle of the manager: admission, and what containers are created with.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{
    ContainerAdditions, ContainerResources, PodAdmitAttributes, PodAdmitHandler, PodExt, Rejection,
};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::parts::{NodePods, PluginAllocator};
use super::persist::StateFiles;
use crate::Result;
use crate::cpu::CpuState;
use crate::cpu_set::CpuSet;
use crate::decision::{Allocator, Share};
use crate::memory::MemoryState;
use crate::topology::provider_error;

/// Admits pods, and knows where their containers run. Cheap to clone.
///
/// As a [`PodAdmitHandler`] it allocates the resources of the pods that it admits.
#[derive(Clone)]
pub struct ResourceManagerHandle {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// Who holds it may admit. It guards no data, so it may be held while plugins answer.
    pub(super) turn: AsyncMutex<()>,
    /// Never locked while a plugin is called.
    pub(super) allocator: Mutex<Allocator>,
    /// Called in this order for each share.
    pub(super) plugins: Vec<Arc<dyn PluginAllocator>>,
    pub(super) files: StateFiles,
    /// Set when the manager runs, which keeps them. The pods' agent has the handle of this manager, so that an [`Arc`] would be a cycle.
    pub(super) pods: OnceLock<Weak<dyn NodePods>>,
    /// The CPUs that running containers were last given, by the pod's UID and the container's name (`lastUpdateState`).
    pub(super) given: Mutex<BTreeMap<String, BTreeMap<String, CpuSet>>>,
}

/// Where a container runs: for the `linux` resources of its configuration (`PreCreateContainer`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// `cpuset_cpus`: its CPUs, or the shared ones. Empty under the policy `none`: not set.
    pub cpus: String,
    /// `cpuset_mems`: the NUMA nodes of its memory. Empty: not set.
    pub memory_nodes: String,
}

impl ResourceManagerHandle {
    #[cfg(feature = "plugins")]
    pub(crate) fn allocator(&self) -> parking_lot::MutexGuard<'_, Allocator> {
        self.shared.allocator.lock()
    }

    /// Where the container is to be created.
    pub fn placement(&self, pod_uid: &str, container: &str) -> Placement {
        let allocator = self.shared.allocator.lock();
        let nodes = allocator.memory_state().numa_nodes(pod_uid, container);
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        Placement {
            cpus: allocator.cpu_state().cpus(pod_uid, container).to_string(),
            memory_nodes: nodes.join(","),
        }
    }

    /// A container of the pod was created and starts now (`PreStartContainer`): the memory of the init containers before it is
    /// free.
    ///
    /// # Cancel safety
    ///
    /// May be dropped: the state file is then written later.
    pub async fn container_starts(&self, pod: &Pod, container: &str) {
        let changed = {
            let mut allocator = self.shared.allocator.lock();
            match allocator.cpu_state().allocated(pod.uid_str(), container) {
                Some(cpus) => self.shared.was_given(pod.uid_str(), container, cpus.clone()),
                // The shared CPUs may have changed since its config was made: it is updated once more.
                None => self.shared.forget_given(pod.uid_str(), container),
            }
            allocator.container_starts(pod, container)
        };
        if changed {
            self.shared.write_state().await;
        }
    }

    /// Whether the container's CPUs are its own alone: its CPU time is then not to be limited.
    pub fn has_exclusive_cpus(&self, pod: &Pod, container: &Container) -> bool {
        self.shared.allocator.lock().has_exclusive_cpus(pod, container)
    }

    /// The CPUs that can be exclusive; none under the policy `none`.
    pub fn allocatable_cpus(&self) -> CpuSet {
        self.shared.allocator.lock().allocatable_cpus()
    }

    /// A copy of the CPU manager's state.
    pub fn cpu_state(&self) -> CpuState {
        self.shared.allocator.lock().cpu_state().clone()
    }

    /// A copy of the memory manager's state.
    pub fn memory_state(&self) -> MemoryState {
        self.shared.allocator.lock().memory_state().clone()
    }
}

/// Allocates the pod's resources, or rejects it. The state is on disk before the call returns; a failure to write it is logged,
/// and the manager tries again. Pods are admitted one after the other, also while a plugin is slow to answer.
#[async_trait]
impl PodAdmitHandler for ResourceManagerHandle {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        let _turn = self.shared.turn.lock().await;
        let active = self.shared.active_pods(attributes.other_pods);
        let admitted = self.shared.admit(attributes.pod, active.as_deref()).await;
        for plugins in &self.shared.plugins {
            plugins.admission_ended();
        }
        self.shared.write_state().await;
        admitted.map_err(|error| {
            tracing::info!(pod = %attributes.pod.key(), %error, "the resources of a pod are not allocated");
            error.rejection()
        })
    }
}

/// What a container gets: first what plugins add, in their order, then its CPUs and NUMA nodes.
#[async_trait]
impl ContainerResources for ResourceManagerHandle {
    async fn additions(&self, pod: &Pod, container: &Container) -> Result<ContainerAdditions, String> {
        let mut additions = ContainerAdditions::default();
        for plugins in &self.shared.plugins {
            let more = plugins.additions(pod, container).await;
            append(&mut additions, more.map_err(|error| error.to_string())?);
        }
        let placement = self.placement(pod.uid_str(), &container.name);
        additions.cpus = placement.cpus;
        additions.memory_nodes = placement.memory_nodes;
        let allocator = self.shared.allocator.lock();
        let unlimited = allocator.gates().disable_cpu_quota_with_exclusive_cpus;
        additions.exclusive_cpus = unlimited && allocator.has_exclusive_cpus(pod, container);
        Ok(additions)
    }

    async fn container_starts(&self, pod: &Pod, container: &str) {
        ResourceManagerHandle::container_starts(self, pod, container).await;
    }
}

fn append(additions: &mut ContainerAdditions, more: ContainerAdditions) {
    additions.envs.extend(more.envs);
    additions.mounts.extend(more.mounts);
    additions.devices.extend(more.devices);
    additions.cdi_devices.extend(more.cdi_devices);
    for (name, value) in more.annotations {
        additions.annotations.entry(name).or_insert(value);
    }
}

impl Shared {
    /// Admits a pod. Between the steps of the decision, the plugins of its devices are called.
    async fn admit(&self, pod: &Arc<Pod>, active: Option<&[Arc<Pod>]>) -> Result<()> {
        if let Some(active) = active {
            for plugins in &self.plugins {
                plugins.remove_stale(pod, active);
            }
        }
        let mut admission = self.allocator.lock().begin(pod, active);
        loop {
            let next = self.allocator.lock().next_share(&mut admission);
            let allocated = match next {
                None => break self.allocator.lock().end(admission, Ok(())),
                Some(Ok(share)) => self.allocate(&share).await,
                Some(Err(error)) => Err(error),
            };
            if allocated.is_err() {
                break self.allocator.lock().end(admission, allocated);
            }
        }
    }

    async fn allocate(&self, share: &Share) -> Result<()> {
        for plugins in &self.plugins {
            plugins.allocate(share).await.map_err(provider_error)?;
        }
        self.allocator.lock().allocate(share)
    }

    /// The pods of the node, while the manager runs.
    pub(super) fn pods(&self) -> Option<Arc<dyn NodePods>> {
        self.pods.get().and_then(Weak::upgrade)
    }

    /// The active pods and these. `None` until all are known.
    pub(super) fn active_pods(&self, others: &[Arc<Pod>]) -> Option<Vec<Arc<Pod>>> {
        let pods = self.pods().filter(|pods| pods.sources_ready())?;
        let mut active = pods.holding_pods();
        active.extend_from_slice(others);
        Some(active)
    }

    pub(super) async fn write_state(&self) {
        if let Err(error) = self.files.write(&self.allocator).await {
            tracing::error!(%error, "failed to store the state of the resource managers, it is tried again later");
        }
    }

    pub(super) fn was_given(&self, pod_uid: &str, container: &str, cpus: CpuSet) {
        let mut given = self.given.lock();
        let of_pod = given.entry(pod_uid.to_owned()).or_default();
        of_pod.insert(container.to_owned(), cpus);
    }

    pub(super) fn forget_given(&self, pod_uid: &str, container: &str) {
        if let Some(of_pod) = self.given.lock().get_mut(pod_uid) {
            of_pod.remove(container);
        }
    }
}
