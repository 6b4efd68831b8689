//! The memory manager's state file, `memory_manager_state`.
//!
//! Two formats exist. The kubelet v1.36 writes the first one, and the second one if the gate `PodLevelResourceManagers` is on.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::MemoryPolicy;
use super::state::{ContainerBlocks, MemoryBlock, MemoryState, MemoryTable, NodeMap, NodeMemory};
use crate::checkpoint::{GoText, Unreadable, checksum};
use crate::requests::Gates;
use crate::{Error, Result};

/// Both formats; the first one has no pods.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    #[serde(default)]
    policy_name: String,
    #[serde(default)]
    machine_state: NodeMap,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: ContainerBlocks,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pod_entries: BTreeMap<String, PodEntry>,
    #[serde(default)]
    checksum: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodEntry {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    memory_blocks: Vec<MemoryBlock>,
}

/// The contents of the file for this state.
///
/// # Errors
///
/// None in practice: the state can be written as JSON.
pub fn write_memory_state(state: &MemoryState, policy: MemoryPolicy, gates: Gates) -> Result<Vec<u8>> {
    let pods = state.pods.iter().map(|(uid, blocks)| {
        let memory_blocks = blocks.clone();
        (uid.clone(), PodEntry { memory_blocks })
    });
    let mut checkpoint = Checkpoint {
        policy_name: policy.as_str().to_owned(),
        machine_state: state.nodes.clone(),
        entries: state.containers.clone(),
        pod_entries: BTreeMap::new(),
        checksum: 0,
    };
    checkpoint.checksum = if gates.pod_level_resource_managers {
        checkpoint.pod_entries = pods.collect();
        checksum(&checkpoint.second_text())
    } else {
        checksum(&checkpoint.first_text("state.MemoryManagerCheckpoint"))
    };
    serde_json::to_vec(&checkpoint).map_err(|error| Error::Refused(error.to_string()))
}

/// The state in a file with these contents. `path` is for the message.
///
/// # Errors
///
/// With the kubelet's text, if the file is damaged or of another policy.
pub fn read_memory_state(
    contents: &[u8],
    policy: MemoryPolicy,
    gates: Gates,
    path: &Path,
) -> Result<MemoryState> {
    read(contents, gates)
        .and_then(|checkpoint| checkpoint.into_state(policy))
        .map_err(|error| {
            Error::Refused(format!(
                "could not restore state from checkpoint: {error}, please drain this node and delete the memory manager \
                 checkpoint file {:?} before restarting Kubelet",
                path.display().to_string()
            ))
        })
}

/// Tries the formats, the newest one first (`loadAndMigrateCheckpointV2`).
fn read(contents: &[u8], gates: Gates) -> Result<Checkpoint, Unreadable> {
    let mut checkpoint: Checkpoint = serde_json::from_slice(contents)?;
    let found = checkpoint.checksum;
    if gates.pod_level_resource_managers && found == checksum(&checkpoint.second_text()) {
        return Ok(checkpoint);
    }
    checkpoint.pod_entries.clear();
    let is = |type_name| found == checksum(&checkpoint.first_text(type_name));
    // Very old files have no checksum.
    let is_valid = found == 0
        || is("state.MemoryManagerCheckpoint")
        || (!gates.pod_level_resource_managers && is("state.MemoryManagerCheckpointV1"));
    match is_valid {
        true => Ok(checkpoint),
        false => Err(Unreadable::Corrupt),
    }
}

impl Checkpoint {
    fn fields(&self, text: GoText) -> GoText {
        let entries = GoText::map(&self.entries, |containers| {
            GoText::map(containers, |blocks| blocks_text(blocks))
        });
        text.field("PolicyName", "string", &self.policy_name)
            .field(
                "MachineState",
                "state.NUMANodeMap",
                GoText::map(&self.machine_state, node_text),
            )
            .field("Entries", "state.ContainerMemoryAssignments", entries)
    }

    fn first_text(&self, type_name: &str) -> String {
        self.fields(GoText::pointer_to(type_name))
            .field("Checksum", "checksum.Checksum", 0)
            .end()
    }

    fn second_text(&self) -> String {
        let pods = GoText::map(&self.pod_entries, |entry| {
            let blocks = match entry.memory_blocks.is_empty() {
                true => "<nil>".to_owned(),
                false => blocks_text(&entry.memory_blocks),
            };
            GoText::value()
                .field("MemoryBlocks", "[]state.Block", blocks)
                .end()
        });
        self.fields(GoText::pointer_to("state.MemoryManagerCheckpoint"))
            .field("PodEntries", "state.PodMemoryAssignments", pods)
            .field("Checksum", "checksum.Checksum", 0)
            .end()
    }

    /// `restoreState`
    fn into_state(self, policy: MemoryPolicy) -> Result<MemoryState, Unreadable> {
        if self.policy_name != policy.as_str() {
            return Err(Unreadable::Other(format!(
                "[memorymanager] configured policy {:?} differs from state checkpoint policy {:?}",
                policy.as_str(),
                self.policy_name
            )));
        }
        let pods = self.pod_entries.into_iter();
        Ok(MemoryState {
            nodes: self.machine_state,
            containers: self.entries,
            pods: pods.map(|(uid, entry)| (uid, entry.memory_blocks)).collect(),
        })
    }
}

fn node_text(node: &NodeMemory) -> String {
    GoText::pointer()
        .field("NumberOfAssignments", "int", node.assignments)
        .field(
            "MemoryMap",
            "map[v1.ResourceName]*state.MemoryTable",
            GoText::map(&node.memory, table_text),
        )
        .field("Cells", "[]int", ids_text(&node.group))
        .end()
}

fn table_text(table: &MemoryTable) -> String {
    GoText::pointer()
        .field("TotalMemSize", "uint64", table.total)
        .field("SystemReserved", "uint64", table.system_reserved)
        .field("Allocatable", "uint64", table.allocatable)
        .field("Reserved", "uint64", table.reserved)
        .field("Free", "uint64", table.free)
        .end()
}

fn blocks_text(blocks: &[MemoryBlock]) -> String {
    GoText::list(blocks, |block| {
        GoText::value()
            .field("NUMAAffinity", "[]int", ids_text(&block.nodes))
            .field("Type", "v1.ResourceName", &block.resource)
            .field("Size", "uint64", block.size)
            .end()
    })
}

fn ids_text(ids: &[usize]) -> String {
    GoText::list(ids, ToString::to_string)
}
