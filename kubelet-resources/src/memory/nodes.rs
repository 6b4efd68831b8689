//! The memory of the NUMA nodes: what there is, what an allocation takes, what a release gives back.

use std::collections::{BTreeMap, BTreeSet};

use kubelet_core::quantity::{Amount, Format};

use super::state::{MemoryBlock, MemoryTable, NodeMap, NodeMemory};
use crate::machine::Machine;

/// Bytes that are reserved for the system, by NUMA node and resource (`systemReservedMemory`).
pub(super) type Reserved = BTreeMap<usize, BTreeMap<String, u64>>;

/// The nodes before anything is allocated (`getDefaultMachineState`).
pub(super) fn empty_nodes(machine: &Machine, reserved: &Reserved) -> NodeMap {
    let reserved_of = |node: usize, resource: &str| {
        let of_node = reserved.get(&node);
        of_node
            .and_then(|of_node| of_node.get(resource))
            .copied()
            .unwrap_or_default()
    };
    let nodes = machine.nodes.iter().map(|node| {
        let mut memory = BTreeMap::new();
        let mut huge = 0;
        for pages in &node.huge_pages {
            let page = pages.size_kib.saturating_mul(1024);
            let total = page.saturating_mul(pages.count);
            huge += total;
            let resource = huge_pages_name(page);
            let system_reserved = reserved_of(node.id, &resource);
            memory.insert(resource, table(total, system_reserved, 0));
        }
        let system_reserved = reserved_of(node.id, "memory");
        memory.insert("memory".to_owned(), table(node.memory, system_reserved, huge));
        let state = NodeMemory {
            assignments: 0,
            memory,
            group: vec![node.id],
        };
        (node.id, state)
    });
    nodes.collect()
}

/// What is reserved or in huge pages cannot be allocated.
fn table(total: u64, system_reserved: u64, huge: u64) -> MemoryTable {
    let allocatable = total.saturating_sub(system_reserved).saturating_sub(huge);
    MemoryTable {
        total,
        system_reserved,
        allocatable,
        reserved: 0,
        free: allocatable,
    }
}

/// The name of the resource for pages of this many bytes, e.g. `hugepages-2Mi` (`HugePageResourceName`).
fn huge_pages_name(bytes: u64) -> String {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    format!("hugepages-{}", Amount::from_units(bytes).write(Format::BinarySi))
}

/// Takes memory from these nodes, the first ones first (`updateMachineState`). They serve as a group from then on.
pub(super) fn take(nodes: &mut NodeMap, from: &[usize], resource: &str, mut size: u64) {
    for id in from {
        let Some(node) = nodes.get_mut(id) else { continue };
        node.assignments += 1;
        node.group = from.to_vec();
        if let Some(table) = node.memory.get_mut(resource) {
            let taken = size.min(table.free);
            table.reserved += taken;
            table.free -= taken;
            size -= taken;
        }
    }
}

/// Gives the memory of the blocks back (`releaseMemory`). Returns whether all of it was found on their nodes.
///
/// It may not be: under `best-effort`, a node of a group can serve blocks alone, too, and another block was released from the
/// wrong node.
pub(super) fn give_back(nodes: &mut NodeMap, blocks: &[MemoryBlock]) -> bool {
    let mut complete = true;
    for block in blocks {
        let mut size = block.size;
        for id in &block.nodes {
            let Some(node) = nodes.get_mut(id) else { continue };
            node.assignments -= 1;
            if node.assignments == 0 {
                node.group = vec![*id];
            }
            if let Some(table) = node.memory.get_mut(&block.resource) {
                let returned = size.min(table.reserved);
                table.free += returned;
                table.reserved -= returned;
                size -= returned;
            }
        }
        complete &= size == 0;
    }
    complete
}

/// The nodes from which these blocks were allocated. Blocks of few nodes are placed first: those of more nodes then fit into what
/// is left.
pub(super) fn place<'a>(empty: &NodeMap, blocks: impl Iterator<Item = &'a MemoryBlock>) -> NodeMap {
    let mut nodes = empty.clone();
    let mut blocks: Vec<&MemoryBlock> = blocks.collect();
    blocks.sort_by_key(|block| block.nodes.len());
    for block in blocks {
        take(&mut nodes, &block.nodes, &block.resource, block.size);
    }
    nodes
}

/// The nodes that serve blocks of different groups. What a node's group is, and how memory is divided among these nodes, then
/// depends on the order of the allocations.
pub(super) fn mixed<'a>(blocks: impl Iterator<Item = &'a MemoryBlock>) -> BTreeSet<usize> {
    let mut groups: BTreeMap<usize, &[usize]> = BTreeMap::new();
    let mut mixed = BTreeSet::new();
    for block in blocks {
        for id in &block.nodes {
            let group = *groups.entry(*id).or_insert(&block.nodes);
            if !is_same_group(group, &block.nodes) {
                mixed.extend(group.iter().chain(&block.nodes));
            }
        }
    }
    mixed
}

/// Whether both describe the same machine with the same allocations (`areMachineStatesEqual`). Among the nodes of a group,
/// memory may be divided in different ways.
///
/// So it may among the mixed nodes, and among those whose group is still that of a block that was released.
pub(super) fn are_equal(one: &NodeMap, other: &NodeMap, mut mixed: BTreeSet<usize>) -> bool {
    for (id, a) in one {
        if let Some(b) = other.get(id)
            && !is_same_group(&a.group, &b.group)
        {
            mixed.extend(a.group.iter().chain(&b.group));
        }
    }
    let all_mixed: Vec<usize> = mixed.iter().copied().collect();
    let of_group = |nodes: &NodeMap, group: &[usize], resource: &str| {
        let tables = group.iter().filter_map(|id| nodes.get(id)?.memory.get(resource));
        tables.fold((0, 0), |(free, reserved), table| {
            (free + table.free, reserved + table.reserved)
        })
    };
    one.len() == other.len()
        && one.iter().all(|(id, a)| {
            let Some(b) = other.get(id) else { return false };
            let is_mixed = mixed.contains(id);
            let group = if is_mixed { &all_mixed } else { &a.group };
            a.assignments == b.assignments
                && a.memory.len() == b.memory.len()
                && a.memory.iter().all(|(resource, a_table)| {
                    b.memory.get(resource).is_some_and(|b_table| {
                        a_table.total == b_table.total
                            && a_table.system_reserved == b_table.system_reserved
                            && a_table.allocatable == b_table.allocatable
                            && of_group(one, group, resource) == of_group(other, group, resource)
                    })
                })
        })
}

/// Whether both lists have the same nodes, in any order (`areGroupsEqual`).
pub(super) fn is_same_group(one: &[usize], other: &[usize]) -> bool {
    let sorted = |group: &[usize]| {
        let mut group = group.to_vec();
        group.sort_unstable();
        group
    };
    one.len() == other.len() && sorted(one) == sorted(other)
}
