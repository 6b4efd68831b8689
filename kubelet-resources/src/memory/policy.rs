//! The static policy: the memory of guaranteed pods is on NUMA nodes that have room for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{PodExt, QosClass, qos_class};

use super::hints::is_used_otherwise;
use super::nodes::{Reserved, are_equal, empty_nodes, give_back, mixed, place, take};
use super::state::{MemoryBlock, MemoryState, NodeMap};
use crate::machine::Machine;
use crate::metrics::{Resource, count_allocation};
use crate::numa_set::NumaSet;
use crate::requests::{
    Gates, MemoryRequests, container_memory, ends_before_next, init_containers, is_sidecar,
};
use crate::topology::TopologyHint;
use crate::{Error, Result};

/// The policy (`staticPolicy`). It changes a [`MemoryState`] and does no I/O.
#[derive(Clone, Debug)]
pub(crate) struct StaticPolicy {
    pub(super) gates: Gates,
    /// The nodes before anything is allocated.
    empty: NodeMap,
    reusable: Reusable,
}

/// The memory of the init containers of the pod that was admitted last: its next containers may get it.
#[derive(Clone, Debug, Default)]
struct Reusable {
    pod_uid: String,
    sizes: BTreeMap<(NumaSet, String), u64>,
}

/// What an allocation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The memory of this pod is not managed.
    Unmanaged,
    /// The container has memory already.
    Present,
    /// It got memory.
    Allocated,
}

impl StaticPolicy {
    pub(super) fn new(machine: &Machine, reserved: &Reserved, gates: Gates) -> Self {
        Self {
            gates,
            empty: empty_nodes(machine, reserved),
            reusable: Reusable::default(),
        }
    }

    /// Fills an empty state, and checks one that was read (`validateState`).
    ///
    /// # Errors
    ///
    /// If the state does not suit the machine or the configuration.
    pub(super) fn check_state(&self, state: &mut MemoryState) -> Result<()> {
        if state.nodes.is_empty() {
            if !state.containers.is_empty() {
                return Err(Error::Refused(
                    "[memorymanager] machine state can not be empty when it has memory assignments"
                        .to_owned(),
                ));
            }
            state.nodes = self.empty.clone();
            return Ok(());
        }
        for (pod_uid, container, block) in self.all_blocks(state) {
            self.check_block(pod_uid, container, block)?;
        }
        let (_, are_right) = self.expected_nodes(state);
        match are_right {
            true => Ok(()),
            false => Err(Error::Refused(
                "[memorymanager] the expected machine state is different from the real one".to_owned(),
            )),
        }
    }

    /// The nodes that follow from the blocks of a state, and whether the state's nodes equal them.
    fn expected_nodes(&self, state: &MemoryState) -> (NodeMap, bool) {
        let blocks = || self.all_blocks(state).map(|(_, _, block)| block);
        let expected = place(&self.empty, blocks());
        let are_right = are_equal(&state.nodes, &expected, mixed(blocks()));
        (expected, are_right)
    }

    /// All blocks that were allocated, with the pod's UID and the container's name. Pods with pod-level resources have theirs as a
    /// whole.
    fn all_blocks<'a>(
        &self,
        state: &'a MemoryState,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a MemoryBlock)> {
        let of_pods = self.gates.pod_level_resource_managers;
        state.containers.iter().flat_map(move |(pod_uid, containers)| {
            let of_pod = state
                .pods
                .get(pod_uid)
                .filter(|blocks| of_pods && !blocks.is_empty());
            let as_a_whole = of_pod.into_iter().flatten().map(|block| ("", block));
            let containers = containers.iter().filter(move |_| of_pod.is_none());
            let single =
                containers.flat_map(|(name, blocks)| blocks.iter().map(move |block| (name.as_str(), block)));
            as_a_whole
                .chain(single)
                .map(move |(container, block)| (pod_uid.as_str(), container, block))
        })
    }

    /// Whether the nodes of the block have such memory.
    fn check_block(&self, pod_uid: &str, container: &str, block: &MemoryBlock) -> Result<()> {
        let refused = |what: &str| {
            Err(Error::Refused(format!(
                "[memorymanager] (pod: {pod_uid}, container: {container}) the memory assignment uses {what} that does not \
                 exist"
            )))
        };
        for id in &block.nodes {
            match self.empty.get(id) {
                None => return refused("the NUMA"),
                Some(node) if !node.memory.contains_key(&block.resource) => {
                    return refused("memory resource");
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Allocates for a container (`Allocate`).
    ///
    /// # Errors
    ///
    /// If no nodes have enough memory, or none that go with the hint.
    pub(super) fn allocate(
        &mut self,
        state: &mut MemoryState,
        pod: &Arc<Pod>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<Outcome> {
        if qos_class(pod) != QosClass::Guaranteed || self.gates.ignore_pod(pod) {
            return Ok(Outcome::Unmanaged);
        }
        let pod_uid = pod.uid_str();
        if let Some(blocks) = state.blocks(pod_uid, &container.name) {
            let blocks = blocks.to_vec();
            self.update_reusable(pod, container, &blocks);
            return Ok(Outcome::Present);
        }
        let requests = container_memory(self.gates, pod, container)?;
        let nodes = self.choose(&state.nodes, pod_uid, &requests, hint)?;
        let members: Vec<usize> = nodes.iter().collect();
        let (mut blocks, mut reused_blocks) = (Vec::new(), Vec::new());
        for (resource, size) in requests {
            let reused = size.min(self.reusable(pod_uid, nodes, &resource));
            take(&mut state.nodes, &members, &resource, size - reused);
            count_allocation(Resource::Memory, false);
            let block = |size| MemoryBlock {
                nodes: members.clone(),
                resource: resource.clone(),
                size,
            };
            blocks.push(block(size));
            reused_blocks.push(block(reused));
        }
        self.update_reusable(pod, container, &blocks);
        state.set(pod_uid, &container.name, blocks);
        // The kubelet subtracts all that the container got. It loses memory when an earlier container is not in the state any more.
        shrink_init_containers(state, pod, container, &reused_blocks);
        tracing::debug!(pod = %pod.key(), container = container.name, %nodes, "allocated memory");
        Ok(Outcome::Allocated)
    }

    /// Frees what the container has (`RemoveContainer`).
    pub(super) fn release(&mut self, state: &mut MemoryState, pod_uid: &str, container: &str) {
        let mut blocks = state.remove(pod_uid, container).unwrap_or_default();
        // The kubelet keeps it. A static pod that comes back with its UID would then reuse memory that is free.
        if self.reusable.pod_uid == pod_uid {
            self.reusable = Reusable::default();
        }
        if self.gates.pod_level_resource_managers && state.pods.contains_key(pod_uid) {
            // The last container gives back what the pod has.
            blocks = match state.containers.contains_key(pod_uid) {
                true => Vec::new(),
                false => state.pods.remove(pod_uid).unwrap_or_default(),
            };
        }
        // After blocks of different groups on one node, the kubelet loses memory here, or frees it on the wrong node and refuses its own
        // state at the next start.
        let complete = give_back(&mut state.nodes, &blocks);
        let (expected, are_right) = self.expected_nodes(state);
        if !complete || !are_right {
            tracing::warn!(
                pod_uid,
                container,
                "memory was allocated from nodes of different groups, counting it anew"
            );
            state.nodes = expected;
        }
    }

    /// The nodes of the hint, or more, or others, with enough memory.
    pub(super) fn choose(
        &self,
        nodes: &NodeMap,
        pod_uid: &str,
        requests: &MemoryRequests,
        hint: TopologyHint,
    ) -> Result<NumaSet> {
        let failed = |reason: &str| Error::Allocation(format!("[memorymanager] {reason}"));
        let mut best = hint;
        if hint.nodes.is_none() {
            let hints = self.hints(nodes, pod_uid, requests);
            best = best_of(hints).ok_or_else(|| {
                failed(
                    "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
                )
            })?;
            if hint.preferred && !best.preferred {
                return Err(failed("failed to find the default preferred hint"));
            }
        }
        let mut chosen = best.nodes.unwrap_or_default();
        if !has_free(nodes, chosen, requests) {
            let mut hints = self.hints(nodes, pod_uid, requests);
            hints.retain(|hint| hint.nodes.is_some_and(|nodes| chosen.is_subset(nodes)));
            let extended = best_of(hints)
                .ok_or_else(|| failed("failed to find NUMA nodes to extend the current topology hint"))?;
            if best.preferred && !extended.preferred {
                return Err(failed("failed to find the extended preferred hint"));
            }
            chosen = extended.nodes.unwrap_or_default();
        }
        let members: Vec<usize> = chosen.iter().collect();
        match members.len() > 1 && is_used_otherwise(nodes, &members) {
            true => Err(failed("preferred hint violates NUMA node allocation")),
            false => Ok(chosen),
        }
    }

    /// The bytes that the pod's next containers may get again on these nodes (`getPodReusableMemory`).
    pub(super) fn reusable(&self, pod_uid: &str, nodes: NumaSet, resource: &str) -> u64 {
        if self.reusable.pod_uid != pod_uid {
            return 0;
        }
        let size = self.reusable.sizes.get(&(nodes, resource.to_owned()));
        size.copied().unwrap_or_default()
    }

    /// Notes what the next containers of the pod may get again (`updatePodReusableMemory`).
    fn update_reusable(&mut self, pod: &Pod, container: &Container, blocks: &[MemoryBlock]) {
        if self.reusable.pod_uid != pod.uid_str() {
            self.reusable = Reusable {
                pod_uid: pod.uid_str().to_owned(),
                sizes: BTreeMap::new(),
            };
        }
        let ends = ends_before_next(pod, container);
        for block in blocks {
            let nodes = NumaSet::of(block.nodes.iter().copied()).unwrap_or_default();
            let key = (nodes, block.resource.clone());
            if ends {
                let most = self.reusable.sizes.entry(key).or_default();
                *most = (*most).max(block.size);
            } else if let Some(left) = self.reusable.sizes.get_mut(&key) {
                *left = left.saturating_sub(block.size);
            }
        }
    }
}

/// A preferred hint before others, then the one with fewer nodes (`findBestHint`).
fn best_of(hints: Vec<TopologyHint>) -> Option<TopologyHint> {
    hints.into_iter().min_by_key(|hint| {
        let nodes = hint.nodes.unwrap_or_default();
        (!hint.preferred, nodes.len(), nodes.bits())
    })
}

/// Whether these nodes together have enough free memory (`isAffinitySatisfyRequest`).
fn has_free(nodes: &NodeMap, set: NumaSet, requests: &MemoryRequests) -> bool {
    requests.iter().all(|(resource, size)| {
        let free = set
            .iter()
            .filter_map(|id| nodes.get(&id))
            .map(|node| node.free(resource));
        free.fold(0, u64::saturating_add) >= *size
    })
}

/// Subtracts the memory that the container reuses from the blocks of the init containers before it, so that the sum of all blocks
/// is what is allocated (`updateInitContainersMemoryBlocks`).
fn shrink_init_containers(state: &mut MemoryState, pod: &Pod, container: &Container, reused: &[MemoryBlock]) {
    let Some(of_pod) = state.containers.get_mut(pod.uid_str()) else {
        return;
    };
    let before: Vec<&Container> = init_containers(pod)
        .take_while(|init| init.name != container.name)
        .filter(|init| !is_sidecar(init))
        .collect();
    for block in reused {
        let mut left = block.size;
        for init in &before {
            let init_blocks = of_pod.get_mut(&init.name).into_iter().flatten();
            for init_block in init_blocks {
                let is_same = init_block.resource == block.resource
                    && NumaSet::of(init_block.nodes.iter().copied())
                        == NumaSet::of(block.nodes.iter().copied());
                if is_same {
                    let size = left.min(init_block.size);
                    init_block.size -= size;
                    left -= size;
                }
            }
        }
    }
}
