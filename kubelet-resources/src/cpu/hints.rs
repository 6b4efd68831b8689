//! On which NUMA nodes CPUs are available.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;

use super::pods::check_shared_pool;
use super::policy::StaticPolicy;
use super::state::CpuState;
use crate::cpu_set::CpuSet;
use crate::numa_set::NumaSet;
use crate::requests::{exclusive_cpus, exclusive_cpus_of_pod};
use crate::topology::{ResourceHints, TopologyHint};

impl StaticPolicy {
    /// The hints for a container (`GetTopologyHints`).
    pub(super) fn container_hints(
        &self,
        state: &CpuState,
        pod: &Arc<Pod>,
        container: &Container,
    ) -> ResourceHints {
        let requested = exclusive_cpus(self.gates, pod, container);
        if requested == 0 || self.gates.ignore_pod(pod) {
            return ResourceHints::new();
        }
        let hints = match state.allocated(pod.uid_str(), &container.name) {
            Some(allocated) if allocated.len() == requested => {
                self.hints(allocated, &CpuSet::new(), requested)
            }
            Some(_) => Vec::new(),
            None => self.hints(&self.available(state), &self.reusable(pod.uid_str()), requested),
        };
        of_cpus(hints)
    }

    /// The hints for a whole pod (`GetPodTopologyHints`).
    pub(super) fn pod_hints(&self, state: &CpuState, pod: &Arc<Pod>) -> ResourceHints {
        let requested = exclusive_cpus_of_pod(self.gates, pod);
        if requested == 0 || self.gates.ignore_pod(pod) {
            return ResourceHints::new();
        }
        if self.gates.allocate_for_pod(pod) && check_shared_pool(self.gates, pod).is_err() {
            return of_cpus(Vec::new());
        }
        if let Some(of_pod) = state
            .pods
            .get(pod.uid_str())
            .filter(|cpus| cpus.len() == requested)
        {
            return of_cpus(self.hints(of_pod, &CpuSet::new(), requested));
        }
        let mut assigned = CpuSet::new();
        for container in pod.all_containers() {
            if let Some(allocated) = state.allocated(pod.uid_str(), &container.name) {
                if allocated.len() != exclusive_cpus(self.gates, pod, container) {
                    return of_cpus(Vec::new());
                }
                assigned = assigned.union(allocated);
            }
        }
        if assigned.len() == requested {
            return of_cpus(self.hints(&assigned, &CpuSet::new(), requested));
        }
        let reusable = self.reusable(pod.uid_str()).union(&assigned);
        of_cpus(self.hints(&self.available(state), &reusable, requested))
    }

    /// Each set of nodes with enough CPUs. CPUs to reuse must be on these nodes (`generateCPUTopologyHints`).
    fn hints(&self, available: &CpuSet, reusable: &CpuSet, requested: usize) -> Vec<TopologyHint> {
        let numa = &self.topology.numa;
        let nodes = self.topology.numa_nodes();
        let counts = |cpus: &CpuSet| {
            let mut counts = [0; NumaSet::MAX_NODES];
            for node in nodes.iter() {
                counts[node] = numa.cpus(node).intersection_len(cpus);
            }
            counts
        };
        let (total, available) = (counts(&self.topology.cpus), counts(available));
        let in_set = |counts: &[usize], set: NumaSet| set.iter().map(|node| counts[node]).sum::<usize>();
        let reused = NumaSet::of(reusable.iter().filter_map(|cpu| numa.of(cpu))).unwrap_or_default();

        // How many nodes are needed when all CPUs are free.
        let mut fewest = nodes.len();
        let mut fitting = Vec::new();
        for set in nodes.subsets() {
            if set.len() < fewest && in_set(&total, set) >= requested {
                fewest = set.len();
            }
            if reused.is_subset(set) && reusable.len() + in_set(&available, set) >= requested {
                fitting.push(set);
            }
        }
        let hints = fitting.into_iter().map(|set| {
            let preferred = set.len() == fewest || self.is_aligned_by_socket(set, fewest);
            TopologyHint::new(set, preferred)
        });
        hints.collect()
    }

    /// Whether these nodes span no more sockets than needed, if that is what counts (`isHintSocketAligned`).
    fn is_aligned_by_socket(&self, nodes: NumaSet, fewest_nodes: usize) -> bool {
        let topology = &self.topology;
        let nodes_per_socket = topology
            .numa
            .len()
            .checked_div(topology.sockets.len())
            .unwrap_or_default();
        self.options.align_by_socket
            && nodes_per_socket > 0
            && topology.sockets_of(nodes).len() == fewest_nodes.div_ceil(nodes_per_socket)
    }
}

fn of_cpus(hints: Vec<TopologyHint>) -> ResourceHints {
    ResourceHints::from([("cpu".to_owned(), Some(hints))])
}
