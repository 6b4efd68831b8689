//! On which NUMA nodes memory is available.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{PodExt, QosClass, qos_class};

use super::nodes::is_same_group;
use super::pods::check_shared_pool;
use super::policy::StaticPolicy;
use super::state::{MemoryBlock, MemoryState, NodeMap};
use crate::numa_set::NumaSet;
use crate::requests::{MemoryRequests, container_memory, pod_memory};
use crate::topology::{ResourceHints, TopologyHint};

impl StaticPolicy {
    /// The hints for a container (`GetTopologyHints`).
    pub(super) fn container_hints(
        &self,
        state: &MemoryState,
        pod: &Arc<Pod>,
        container: &Container,
    ) -> ResourceHints {
        if qos_class(pod) != QosClass::Guaranteed || self.gates.ignore_pod(pod) {
            return ResourceHints::new();
        }
        let Ok(requests) = container_memory(self.gates, pod, container)
            .inspect_err(|error| tracing::error!(pod = %pod.key(), %error, "no memory hints"))
        else {
            return ResourceHints::new();
        };
        match state.blocks(pod.uid_str(), &container.name) {
            Some(blocks) => hints_of_blocks(blocks, &requests),
            None => of_requests(&self.hints(&state.nodes, pod.uid_str(), &requests), &requests),
        }
    }

    /// The hints for a whole pod (`GetPodTopologyHints`).
    pub(super) fn pod_hints(&self, state: &MemoryState, pod: &Arc<Pod>) -> ResourceHints {
        if qos_class(pod) != QosClass::Guaranteed || self.gates.ignore_pod(pod) {
            return ResourceHints::new();
        }
        let Ok(requests) = pod_memory(self.gates, pod)
            .inspect_err(|error| tracing::error!(pod = %pod.key(), %error, "no memory hints"))
        else {
            return ResourceHints::new();
        };
        if self.gates.allocate_for_pod(pod) {
            if let Some(blocks) = state.pods.get(pod.uid_str()) {
                return hints_of_blocks(blocks, &requests);
            }
            if check_shared_pool(self.gates, pod).is_err() {
                let none = |resource: &String| (resource.clone(), Some(Vec::new()));
                return requests.keys().map(none).collect();
            }
        }
        if requests.is_empty() {
            return ResourceHints::new();
        }
        let mut containers = pod.all_containers();
        let blocks = containers.find_map(|container| state.blocks(pod.uid_str(), &container.name));
        match blocks {
            Some(blocks) => hints_of_blocks(blocks, &requests),
            None => of_requests(&self.hints(&state.nodes, pod.uid_str(), &requests), &requests),
        }
    }

    /// Each set of nodes with enough memory of all resources (`calculateHints`). They are the same for all resources.
    ///
    /// A node serves blocks alone, or together with the same other nodes: never both.
    pub(super) fn hints(
        &self,
        nodes: &NodeMap,
        pod_uid: &str,
        requests: &MemoryRequests,
    ) -> Vec<TopologyHint> {
        let all = NumaSet::of(nodes.keys().copied()).unwrap_or_default();
        // How many nodes are needed when all memory is free.
        let mut fewest = all.len();
        let mut fitting = Vec::new();
        if requests.is_empty() {
            return Vec::new();
        }
        for set in all.subsets() {
            let in_set = || set.iter().filter_map(|id| nodes.get(&id));
            let could_fit = requests.iter().all(|(resource, size)| {
                let allocatable = in_set().map(|node| node.allocatable(resource));
                allocatable.fold(0, u64::saturating_add) >= *size
            });
            if !could_fit {
                continue;
            }
            fewest = fewest.min(set.len());
            let members: Vec<usize> = set.iter().collect();
            let is_usable = match set.len() {
                1 => in_set().all(|node| node.group.len() <= 1),
                _ => !is_used_otherwise(nodes, &members),
            };
            let fits = || {
                requests.iter().all(|(resource, size)| {
                    let free = in_set().map(|node| node.free(resource));
                    let free = free.fold(0, u64::saturating_add);
                    free.saturating_add(self.reusable(pod_uid, set, resource)) >= *size
                })
            };
            if is_usable && fits() {
                fitting.push(set);
            }
        }
        let hints = fitting.into_iter();
        hints
            .map(|set| TopologyHint::new(set, set.len() == fewest))
            .collect()
    }
}

/// Whether one of these nodes serves blocks alone, or with other nodes than these.
pub(super) fn is_used_otherwise(nodes: &NodeMap, members: &[usize]) -> bool {
    let mut used = members
        .iter()
        .filter_map(|id| nodes.get(id))
        .filter(|node| node.assignments > 0);
    used.any(|node| node.group.len() == 1 || !is_same_group(&node.group, members))
}

/// No hints at all mean no preference, as if nothing were requested.
fn of_requests(hints: &[TopologyHint], requests: &MemoryRequests) -> ResourceHints {
    if hints.is_empty() {
        return ResourceHints::new();
    }
    let resources = requests.keys();
    resources
        .map(|resource| (resource.clone(), Some(hints.to_vec())))
        .collect()
}

/// The hints for what is already allocated; no preference if that is not what is requested (`regenerateHints`).
fn hints_of_blocks(blocks: &[MemoryBlock], requests: &MemoryRequests) -> ResourceHints {
    if blocks.len() != requests.len() {
        return ResourceHints::new();
    }
    let hints = blocks.iter().map(|block| {
        requests
            .get(&block.resource)
            .filter(|size| **size == block.size)?;
        let nodes = NumaSet::of(block.nodes.iter().copied())?;
        let hint = TopologyHint::new(nodes, true);
        Some((block.resource.clone(), Some(vec![hint])))
    });
    hints.collect::<Option<_>>().unwrap_or_default()
}
