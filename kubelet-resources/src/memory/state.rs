//! Which memory is whose (`memorymanager/state`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The memory of each NUMA node, and what was allocated of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryState {
    /// The NUMA nodes, by their id (`machineState`).
    pub nodes: NodeMap,
    /// The blocks of containers, by the pod's UID and the container's name.
    pub containers: ContainerBlocks,
    /// The blocks of pods with pod-level resources, by the pod's UID. Those of their containers are parts of them.
    pub pods: BTreeMap<String, Vec<MemoryBlock>>,
}

/// NUMA nodes by their id (`NUMANodeMap`).
pub type NodeMap = BTreeMap<usize, NodeMemory>;

/// Blocks by the pod's UID and the container's name (`ContainerMemoryAssignments`).
pub type ContainerBlocks = BTreeMap<String, BTreeMap<String, Vec<MemoryBlock>>>;

/// A NUMA node (`NUMANodeState`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    /// The number of blocks that were allocated from it.
    #[serde(default, rename = "numberOfAssignments")]
    pub assignments: i64,
    /// Its memory, by `memory`, `hugepages-2Mi` and so on.
    #[serde(default, rename = "memoryMap")]
    pub memory: BTreeMap<String, MemoryTable>,
    /// The nodes that serve blocks together with this one, this one included.
    #[serde(default, rename = "cells")]
    pub group: Vec<usize>,
}

/// How much of a node's memory is for what, in bytes (`MemoryTable`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryTable {
    /// All of it.
    #[serde(default)]
    pub total: u64,
    /// For the system and the kubelet.
    #[serde(default, rename = "systemReserved")]
    pub system_reserved: u64,
    /// For containers.
    #[serde(default)]
    pub allocatable: u64,
    /// Allocated to containers.
    #[serde(default)]
    pub reserved: u64,
    /// Neither reserved nor allocated.
    #[serde(default)]
    pub free: u64,
}

/// Memory that was allocated from one or more nodes (`Block`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryBlock {
    /// The nodes.
    #[serde(default, rename = "numaAffinity")]
    pub nodes: Vec<usize>,
    /// `memory`, `hugepages-2Mi` and so on.
    #[serde(default, rename = "type")]
    pub resource: String,
    /// The size in bytes. It gets smaller when a later container reuses the memory of an init container.
    #[serde(default)]
    pub size: u64,
}

impl MemoryState {
    /// The blocks of the container.
    pub fn blocks(&self, pod_uid: &str, container: &str) -> Option<&[MemoryBlock]> {
        let blocks = self.containers.get(pod_uid)?.get(container)?;
        Some(blocks.as_slice())
    }

    /// The NUMA nodes from which the container's memory is, in ascending order (`GetMemoryNUMANodes`).
    pub fn numa_nodes(&self, pod_uid: &str, container: &str) -> Vec<usize> {
        let blocks = self.blocks(pod_uid, container).unwrap_or_default();
        let mut nodes: Vec<usize> = blocks
            .iter()
            .flat_map(|block| block.nodes.iter().copied())
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    pub(super) fn set(&mut self, pod_uid: &str, container: &str, blocks: Vec<MemoryBlock>) {
        let of_pod = self.containers.entry(pod_uid.to_owned()).or_default();
        of_pod.insert(container.to_owned(), blocks);
    }

    pub(super) fn remove(&mut self, pod_uid: &str, container: &str) -> Option<Vec<MemoryBlock>> {
        let of_pod = self.containers.get_mut(pod_uid)?;
        let blocks = of_pod.remove(container);
        if of_pod.is_empty() {
            self.containers.remove(pod_uid);
        }
        blocks
    }
}

impl NodeMemory {
    pub(super) fn free(&self, resource: &str) -> u64 {
        self.memory.get(resource).map_or(0, |table| table.free)
    }

    pub(super) fn allocatable(&self, resource: &str) -> u64 {
        self.memory.get(resource).map_or(0, |table| table.allocatable)
    }
}
