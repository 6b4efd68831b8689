//! The decision about a pod: whether its resources can be allocated, and which ones it gets.

mod admission;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;

pub use self::admission::{PodAdmission, Share};
use crate::active::ActiveContainers;
use crate::cpu::{CpuConfig, CpuManager, CpuPolicy, CpuState};
use crate::cpu_set::CpuSet;
use crate::machine::Machine;
use crate::memory::{MemoryConfig, MemoryManager, MemoryPolicy, MemoryState};
use crate::metrics::{self, Aligned, Boundary, Scope};
use crate::requests::Gates;
use crate::topology::{
    HintProvider, HintSource, HintsOnly, MergedHints, TopologyHint, TopologyMerger, TopologyOptions,
    TopologyPolicy, TopologyScope,
};
use crate::{Error, Result};

/// The settings of the managers.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ResourcesConfig {
    /// The CPU manager's.
    pub cpu: CpuConfig,
    /// The memory manager's.
    pub memory: MemoryConfig,
    /// `topologyManagerPolicy`
    pub topology_policy: TopologyPolicy,
    /// `topologyManagerScope`
    pub topology_scope: TopologyScope,
    /// `topologyManagerPolicyOptions`
    pub topology_options: TopologyOptions,
    /// The gates.
    pub gates: Gates,
}

/// The states of the managers, as their files have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourcesState {
    /// The CPU manager's.
    pub cpu: CpuState,
    /// The memory manager's.
    pub memory: MemoryState,
}

/// The topology, CPU and memory managers together, without I/O.
///
/// Each call depends on the settings, the state and its arguments alone. [`ResourceManager`](crate::ResourceManager) is the
/// engine around it, with state files and a loop.
pub struct Allocator {
    topology: TopologyMerger,
    scope: TopologyScope,
    gates: Gates,
    merged: MergedHints,
    cpu: CpuManager,
    memory: MemoryManager,
    providers: Vec<Box<dyn HintProvider>>,
    /// The pod whose admission is under way: nothing of it is stale (`pendingAdmissionPod`).
    admitting: Option<Arc<Pod>>,
}

impl Allocator {
    /// Checks the settings and the states. An empty state is filled.
    ///
    /// # Errors
    ///
    /// With the kubelet's texts, if the settings do not suit each other or the machine, or a state does not suit them.
    pub fn new(machine: &Machine, config: &ResourcesConfig, state: ResourcesState) -> Result<Self> {
        let mut allocator = Self::without_state(machine, config)?;
        allocator.start_cpu(state.cpu)?;
        allocator.start_memory(state.memory)?;
        Ok(allocator)
    }

    /// Checks the settings only. The states must follow.
    pub(crate) fn without_state(machine: &Machine, config: &ResourcesConfig) -> Result<Self> {
        let gates = config.gates;
        let policy = config.topology_policy;
        let topology = TopologyMerger::new(machine, policy, config.topology_options)?;
        if policy != TopologyPolicy::None {
            for scope in [Scope::Container, Scope::Pod] {
                metrics::add_aligned(scope, Boundary::NumaNode, Aligned::Succeeded, 0);
                metrics::add_aligned(scope, Boundary::NumaNode, Aligned::Failed, 0);
            }
        }
        Ok(Self {
            topology,
            scope: config.topology_scope,
            gates,
            merged: MergedHints::default(),
            cpu: CpuManager::new(machine, &config.cpu, gates, policy)?,
            memory: MemoryManager::new(machine, &config.memory, gates)?,
            providers: Vec::new(),
            admitting: None,
        })
    }

    /// What each of the managers refuses in the settings on this machine, with the field of its policy.
    pub(crate) fn problems(machine: &Machine, config: &ResourcesConfig) -> Vec<(&'static str, Error)> {
        let (gates, policy) = (config.gates, config.topology_policy);
        let topology = TopologyMerger::new(machine, policy, config.topology_options).err();
        let cpu = CpuManager::new(machine, &config.cpu, gates, policy).err();
        let memory = MemoryManager::new(machine, &config.memory, gates).err();
        [
            ("topologyManagerPolicy", topology),
            ("cpuManagerPolicy", cpu),
            ("memoryManagerPolicy", memory),
        ]
        .into_iter()
        .filter_map(|(field, error)| Some((field, error?)))
        .collect()
    }

    pub(crate) fn start_cpu(&mut self, state: CpuState) -> Result<()> {
        self.cpu.start(state)
    }

    pub(crate) fn start_memory(&mut self, state: MemoryState) -> Result<()> {
        self.memory.start(state)
    }

    /// Adds a provider of hints. It is asked before the CPU and memory managers, in the order of the additions.
    #[must_use]
    pub fn with_provider(mut self, provider: Box<dyn HintProvider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Adds a part that gives hints now, and whose allocations are made outside. It is asked before the CPU and memory managers.
    #[must_use]
    pub fn with_hints(mut self, source: Arc<dyn HintSource>) -> Self {
        self.providers.push(Box::new(HintsOnly(source)));
        self
    }

    /// Admits a pod and allocates its resources (`Manager.Admit`).
    ///
    /// `active` are the pods that have not ended; the pod itself may be missing. What others have allocated is freed before. If
    /// it is `None`, not all sources have reported their pods yet, and nothing is freed.
    ///
    /// # Errors
    ///
    /// If the pod is rejected; [`Error::rejection`](crate::Error::rejection) says how. What was allocated for it until then is freed
    /// with the next call in which it is not active.
    pub fn admit(&mut self, pod: &Arc<Pod>, active: Option<&[Arc<Pod>]>) -> Result<()> {
        let mut admission = self.begin(pod, active);
        while let Some(share) = self.next_share(&mut admission) {
            let allocated = share.and_then(|share| self.allocate(&share));
            if let Err(error) = allocated {
                return self.end(admission, Err(error));
            }
        }
        self.end(admission, Ok(()))
    }

    /// Frees what pods have that are not among these (`removeStaleState`). Returns whether something changed.
    pub fn remove_stale<'a>(&mut self, active: impl IntoIterator<Item = &'a Arc<Pod>>) -> bool {
        let mut active = ActiveContainers::of(active);
        if let Some(admitting) = &self.admitting {
            active.add(admitting);
        }
        self.merged.retain(|pod_uid| active.contains_pod(pod_uid));
        let cpu = self.cpu.remove_stale(&active);
        let memory = self.memory.remove_stale(&active);
        cpu || memory
    }

    /// A container of the pod starts: the memory of the init containers before it is free, since they have ended
    /// (`AddContainer`). Returns whether something changed.
    pub fn container_starts(&mut self, pod: &Pod, container: &str) -> bool {
        self.memory.container_starts(pod, pod.uid_str(), container)
    }

    /// The CPU manager's state.
    pub fn cpu_state(&self) -> &CpuState {
        self.cpu.state()
    }

    /// The memory manager's state.
    pub fn memory_state(&self) -> &MemoryState {
        self.memory.state()
    }

    /// The CPUs that can be exclusive; none under the policy `none` (`GetAllocatableCPUs`).
    pub fn allocatable_cpus(&self) -> CpuSet {
        self.cpu.allocatable()
    }

    /// The merged hint of a container (`GetAffinity`); without nodes and not preferred if it was not admitted.
    pub fn merged_hint(&self, pod_uid: &str, container: &str) -> TopologyHint {
        self.merged.get(pod_uid, container)
    }

    /// Whether the container's CPUs are its own alone (`GetResourceIsolationLevel`): its CPU time is then not limited.
    pub fn has_exclusive_cpus(&self, pod: &Pod, container: &Container) -> bool {
        let allocated = self.cpu.state().allocated(pod.uid_str(), &container.name);
        let of_pod = self.gates.allocate_for_pod(pod)
            && !(crate::requests::is_guaranteed(container)
                && crate::requests::has_whole_cpu_limit(container));
        allocated.is_some() && !of_pod
    }

    pub(crate) fn gates(&self) -> Gates {
        self.gates
    }

    pub(crate) fn policies(&self) -> (CpuPolicy, MemoryPolicy) {
        (self.cpu.policy(), self.memory.policy())
    }
}
