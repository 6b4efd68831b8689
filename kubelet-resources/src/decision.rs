//! The decision about a pod: whether its resources can be allocated, and which ones it gets.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;
use tokio::time::Instant;

use crate::active::ActiveContainers;
use crate::cpu::{CpuConfig, CpuManager, CpuPolicy, CpuState};
use crate::cpu_set::CpuSet;
use crate::machine::Machine;
use crate::memory::{MemoryConfig, MemoryManager, MemoryPolicy, MemoryState};
use crate::metrics::{self, Aligned, Boundary, Scope};
use crate::requests::Gates;
use crate::topology::{
    HintProvider, MergedHints, TopologyHint, TopologyMerger, TopologyOptions, TopologyPolicy, TopologyScope,
    provider_error,
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
        })
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

    /// Admits a pod and allocates its resources (`Manager.Admit`).
    ///
    /// `active` are the pods that have not ended; the pod itself may be missing. What others have allocated is freed before. If
    /// it is `None`, not all sources have reported their pods yet, and nothing is freed.
    ///
    /// # Errors
    ///
    /// If the pod is rejected; [`Error::rejection`] says how. What was allocated for it until then is freed with the next call in
    /// which it is not active.
    pub fn admit(&mut self, pod: &Arc<Pod>, active: Option<&[Arc<Pod>]>) -> Result<()> {
        let started = Instant::now();
        if let Some(active) = active {
            self.remove_stale(active.iter().chain([pod]));
        }
        let admitted = match (self.topology.policy(), self.scope) {
            (TopologyPolicy::None, _) => self.allocate_unaligned(pod),
            (_, TopologyScope::Container) => self.admit_containers(pod),
            (_, TopologyScope::Pod) => self.admit_pod(pod),
        };
        metrics::count_admission(started.elapsed());
        admitted
    }

    /// Frees what pods have that are not among these (`removeStaleState`). Returns whether something changed.
    pub fn remove_stale<'a>(&mut self, active: impl IntoIterator<Item = &'a Arc<Pod>>) -> bool {
        let active = ActiveContainers::of(active);
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

    pub(crate) fn policies(&self) -> (CpuPolicy, MemoryPolicy) {
        (self.cpu.policy(), self.memory.policy())
    }

    fn providers(&mut self) -> impl Iterator<Item = &mut dyn HintProvider> {
        let others = self.providers.iter_mut().map(|provider| provider.as_mut() as _);
        others.chain([
            &mut self.cpu as &mut dyn HintProvider,
            &mut self.memory as &mut dyn HintProvider,
        ])
    }

    /// Policy `none` (`admitPolicyNone`).
    fn allocate_unaligned(&mut self, pod: &Arc<Pod>) -> Result<()> {
        for container in pod.all_containers() {
            self.allocate(pod, container, TopologyHint::default())?;
        }
        Ok(())
    }

    /// Scope `container`.
    fn admit_containers(&mut self, pod: &Arc<Pod>) -> Result<()> {
        for container in pod.all_containers() {
            let providers = self.providers();
            let hints = providers.map(|provider| provider.container_hints(pod, container));
            let hints = hints.collect();
            let (hint, admitted) = self.topology.merge(hints);
            tracing::debug!(pod = %pod.key(), container = container.name, ?hint, admitted, "merged hint");
            if !admitted {
                self.count_alignment(Scope::Container, Aligned::Failed);
                metrics::count_admission_error();
                return Err(match self.gates.allocate_for_pod(pod) {
                    true => Error::PodTopologyAffinity(
                        "pod with pod-level resources failed admission with a container-level topology manager",
                    ),
                    false => Error::TopologyAffinity,
                });
            }
            self.merged.set(pod.uid_str(), &container.name, hint);
            self.allocate(pod, container, hint)
                .inspect_err(|_| metrics::count_admission_error())?;
            self.count_alignment(Scope::Container, Aligned::Succeeded);
        }
        Ok(())
    }

    /// Scope `pod`.
    fn admit_pod(&mut self, pod: &Arc<Pod>) -> Result<()> {
        let hints = self.providers().map(|provider| provider.pod_hints(pod)).collect();
        let (hint, admitted) = self.topology.merge(hints);
        tracing::debug!(pod = %pod.key(), ?hint, admitted, "merged hint");
        let as_a_whole = self.gates.allocate_for_pod(pod);
        if !admitted {
            self.count_alignment(Scope::Pod, Aligned::Failed);
            metrics::count_admission_error();
            return Err(match as_a_whole {
                true => Error::PodTopologyAffinity(
                    "pod with pod-level resources failed admission under pod-scope topology manager",
                ),
                false => Error::TopologyAffinity,
            });
        }
        let result = match as_a_whole {
            true => self.allocate_pod(pod, hint),
            false => self.allocate_containers(pod, hint),
        };
        result.inspect_err(|_| metrics::count_admission_error())?;
        self.count_alignment(Scope::Pod, Aligned::Succeeded);
        Ok(())
    }

    fn allocate_containers(&mut self, pod: &Arc<Pod>, hint: TopologyHint) -> Result<()> {
        for container in pod.all_containers() {
            self.merged.set(pod.uid_str(), &container.name, hint);
            self.allocate(pod, container, hint)?;
        }
        Ok(())
    }

    fn allocate_pod(&mut self, pod: &Arc<Pod>, hint: TopologyHint) -> Result<()> {
        for container in pod.all_containers() {
            self.merged.set(pod.uid_str(), &container.name, hint);
        }
        for provider in self.providers() {
            provider.allocate_pod(pod, hint).map_err(provider_error)?;
        }
        Ok(())
    }

    fn allocate(&mut self, pod: &Arc<Pod>, container: &Container, hint: TopologyHint) -> Result<()> {
        for provider in self.providers() {
            provider.allocate(pod, container, hint).map_err(provider_error)?;
        }
        Ok(())
    }

    /// Only `single-numa-node` guarantees that resources are aligned (`IsAlignmentGuaranteed`).
    fn count_alignment(&self, scope: Scope, aligned: Aligned) {
        if self.topology.policy() == TopologyPolicy::SingleNumaNode {
            metrics::add_aligned(scope, Boundary::NumaNode, aligned, 1);
        }
    }
}
