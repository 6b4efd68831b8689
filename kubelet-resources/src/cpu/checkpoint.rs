//! The CPU manager's state file, `cpu_manager_state`.
//!
//! Three formats exist. The kubelet v1.36 writes the second one, and the third one if the gate `PodLevelResourceManagers` is
//! on. The first one has container ids instead of pods and names.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{CpuPolicy, CpuState};
use crate::checkpoint::{GoText, Unreadable, checksum};
use crate::cpu_set::CpuSet;
use crate::requests::Gates;
use crate::{Error, Result};

/// The second and the third format.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checkpoint {
    #[serde(default)]
    policy_name: String,
    #[serde(default, alias = "defaultCPUSet")]
    default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pod_entries: BTreeMap<String, PodEntry>,
    #[serde(default)]
    checksum: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodEntry {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    cpu_set: String,
}

/// The first format.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointV1 {
    #[serde(default)]
    policy_name: String,
    #[serde(default, alias = "defaultCPUSet")]
    default_cpu_set: String,
    /// By container id.
    #[serde(default)]
    entries: BTreeMap<String, String>,
    #[serde(default)]
    checksum: u64,
}

/// The contents of the file for this state.
///
/// # Errors
///
/// None in practice: the state can be written as JSON.
pub fn write_cpu_state(state: &CpuState, policy: CpuPolicy, gates: Gates) -> Result<Vec<u8>> {
    let texts = |containers: &BTreeMap<String, CpuSet>| {
        let texts = containers
            .iter()
            .map(|(name, cpus)| (name.clone(), cpus.to_string()));
        texts.collect()
    };
    let entries = state
        .containers
        .iter()
        .map(|(uid, containers)| (uid.clone(), texts(containers)));
    let pods = state.pods.iter().map(|(uid, cpus)| {
        let cpu_set = cpus.to_string();
        (uid.clone(), PodEntry { cpu_set })
    });
    let mut checkpoint = Checkpoint {
        policy_name: policy.as_str().to_owned(),
        default_cpu_set: state.shared.to_string(),
        entries: entries.collect(),
        pod_entries: BTreeMap::new(),
        checksum: 0,
    };
    checkpoint.checksum = if gates.pod_level_resource_managers {
        checkpoint.pod_entries = pods.collect();
        checksum(
            &checkpoint
                .third_text()
                .map_err(|error| Error::Refused(error.to_string()))?,
        )
    } else {
        checksum(&checkpoint.second_text("state.CPUManagerCheckpoint"))
    };
    serde_json::to_vec(&checkpoint).map_err(|error| Error::Refused(error.to_string()))
}

/// The state in a file with these contents. `containers` are the pod's UID and the name by container id: files of the first
/// format need them. `path` is for the message.
///
/// # Errors
///
/// With the kubelet's text, if the file is damaged or of another policy.
pub fn read_cpu_state(
    contents: &[u8],
    policy: CpuPolicy,
    gates: Gates,
    containers: &BTreeMap<String, (String, String)>,
    path: &Path,
) -> Result<CpuState> {
    read(contents, gates, containers)
        .and_then(|checkpoint| checkpoint.into_state(policy))
        .map_err(|error| {
            Error::Refused(format!(
                "could not restore state from checkpoint: {error}, please drain this node and delete the CPU manager \
                 checkpoint file {:?} before restarting Kubelet",
                path.display().to_string()
            ))
        })
}

/// Tries the formats, the newest one first (`loadAndMigrateCheckpointV3`).
fn read(
    contents: &[u8],
    gates: Gates,
    containers: &BTreeMap<String, (String, String)>,
) -> Result<Checkpoint, Unreadable> {
    if gates.pod_level_resource_managers {
        match read_third(contents) {
            Ok(checkpoint) => return Ok(checkpoint),
            Err(error) => {
                tracing::info!(%error, "the CPU state is not of the third format, trying the second one")
            }
        }
    }
    match read_second(contents, gates) {
        Ok(checkpoint) => return Ok(checkpoint),
        Err(error) => {
            tracing::info!(%error, "the CPU state is not of the second format, trying the first one")
        }
    }
    read_first(contents)?.migrate(containers)
}

fn read_third(contents: &[u8]) -> Result<Checkpoint, Unreadable> {
    let checkpoint: Checkpoint = serde_json::from_slice(contents)?;
    match checkpoint.checksum == checksum(&checkpoint.third_text()?) {
        true => Ok(checkpoint),
        false => Err(Unreadable::Corrupt),
    }
}

fn read_second(contents: &[u8], gates: Gates) -> Result<Checkpoint, Unreadable> {
    let mut checkpoint: Checkpoint = serde_json::from_slice(contents)?;
    checkpoint.pod_entries.clear();
    let is = |type_name| checkpoint.checksum == checksum(&checkpoint.second_text(type_name));
    // Very old files have no checksum.
    let is_valid = checkpoint.checksum == 0
        || is("state.CPUManagerCheckpoint")
        || (!gates.pod_level_resource_managers && is("state.CPUManagerCheckpointV2"));
    match is_valid {
        true => Ok(checkpoint),
        false => Err(Unreadable::Corrupt),
    }
}

fn read_first(contents: &[u8]) -> Result<CheckpointV1, Unreadable> {
    let checkpoint: CheckpointV1 = serde_json::from_slice(contents).map_err(|error| match error.is_data() {
        true => Unreadable::Other(
            "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string".to_owned(),
        ),
        false => error.into(),
    })?;
    let text = GoText::pointer_to("state.CPUManagerCheckpoint")
        .field("PolicyName", "string", &checkpoint.policy_name)
        .field("DefaultCPUSet", "string", &checkpoint.default_cpu_set)
        .field(
            "Entries",
            "map[string]string",
            GoText::map(&checkpoint.entries, String::clone),
        )
        .field("Checksum", "checksum.Checksum", 0)
        .end();
    match checkpoint.checksum == 0 || checkpoint.checksum == checksum(&text) {
        true => Ok(checkpoint),
        false => Err(Unreadable::Corrupt),
    }
}

impl CheckpointV1 {
    /// `migrateV1CheckpointToV2Checkpoint`
    fn migrate(self, containers: &BTreeMap<String, (String, String)>) -> Result<Checkpoint, Unreadable> {
        let mut entries: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (id, cpus) in self.entries {
            let Some((pod_uid, name)) = containers.get(&id) else {
                return Err(Unreadable::Other(format!(
                    "failed to migrate checkpoint from v1 to v2: containerID '{id}' not found in initial containers list"
                )));
            };
            let of_pod = entries.entry(pod_uid.clone()).or_default();
            of_pod.insert(name.clone(), cpus);
        }
        Ok(Checkpoint {
            policy_name: self.policy_name,
            default_cpu_set: self.default_cpu_set,
            entries,
            pod_entries: BTreeMap::new(),
            checksum: 0,
        })
    }
}

impl Checkpoint {
    fn fields(&self, text: GoText) -> GoText {
        let entries = GoText::map(&self.entries, |containers| GoText::map(containers, String::clone));
        text.field("PolicyName", "string", &self.policy_name)
            .field("DefaultCPUSet", "string", &self.default_cpu_set)
            .field("Entries", "map[string]map[string]string", entries)
    }

    fn second_text(&self, type_name: &str) -> String {
        self.fields(GoText::pointer_to(type_name))
            .field("Checksum", "checksum.Checksum", 0)
            .end()
    }

    fn third_text(&self) -> Result<String, Unreadable> {
        let pods = self
            .pod_entries
            .iter()
            .map(|(uid, entry)| Ok((uid, parse(&entry.cpu_set)?)))
            .collect::<Result<BTreeMap<_, _>, String>>()
            .map_err(|error| Unreadable::Other(format!("failed to parse cpuset: {error}")))?;
        let pods = GoText::map(&pods, |cpus| {
            let cpus: BTreeMap<usize, ()> = cpus.iter().map(|cpu| (cpu, ())).collect();
            let elems = GoText::map(&cpus, |()| "{}".to_owned());
            let set = GoText::value().field("elems", "map[int]struct {}", elems);
            GoText::value().field("CPUSet", "cpuset.CPUSet", set.end()).end()
        });
        Ok(self
            .fields(GoText::pointer_to("state.CPUManagerCheckpoint"))
            .field("PodEntries", "state.PodCPUAssignments", pods)
            .field("Checksum", "checksum.Checksum", 0)
            .end())
    }

    /// `restoreState`
    fn into_state(self, policy: CpuPolicy) -> Result<CpuState, Unreadable> {
        let other = Unreadable::Other;
        if self.policy_name != policy.as_str() {
            return Err(other(format!(
                "configured policy {:?} differs from state checkpoint policy {:?}",
                policy.as_str(),
                self.policy_name
            )));
        }
        let shared = parse(&self.default_cpu_set).map_err(|error| {
            other(format!(
                "could not parse default cpu set {:?}: {error}",
                self.default_cpu_set
            ))
        })?;
        let mut containers: BTreeMap<String, BTreeMap<String, CpuSet>> = BTreeMap::new();
        for (pod_uid, entries) in self.entries {
            let of_pod = containers.entry(pod_uid.clone()).or_default();
            for (name, text) in entries {
                let cpus = parse(&text).map_err(|error| {
                    other(format!(
                        "could not parse cpuset {text:?} for container {name:?} in pod {pod_uid:?}: {error}"
                    ))
                })?;
                of_pod.insert(name, cpus);
            }
        }
        let mut pods = BTreeMap::new();
        for (pod_uid, entry) in self.pod_entries {
            let cpus =
                parse(&entry.cpu_set).map_err(|error| other(format!("failed to parse cpuset: {error}")))?;
            pods.insert(pod_uid, cpus);
        }
        Ok(CpuState {
            shared,
            containers,
            pods,
        })
    }
}

fn parse(text: &str) -> Result<CpuSet, String> {
    text.parse()
        .map_err(|error: crate::cpu_set::CpuSetError| error.to_string())
}
