//! The state files, held to those that the kubelet's own tests read.

use std::collections::BTreeMap;
use std::path::Path;

use kubelet_resources::checkpoint::{
    StateFolder, StateStore, read_cpu_state, read_memory_state, write_cpu_state, write_memory_state,
};
use kubelet_resources::cpu::{CpuPolicy, CpuState};
use kubelet_resources::memory::{MemoryPolicy, MemoryState};
use kubelet_resources::{CpuSet, Gates, Result};
use serde_json::{Value, json};

fn gates(pod_level: bool) -> Gates {
    let mut gates = Gates::default();
    gates.pod_level_resource_managers = pod_level;
    gates
}

fn read_cpu(contents: &str, pod_level: bool) -> Result<CpuState> {
    let containers = ["container1", "container2"].map(|name| {
        let id = name.replace("container", "containerID");
        (id, ("pod".to_owned(), name.to_owned()))
    });
    read_cpu_state(
        contents.as_bytes(),
        CpuPolicy::None,
        gates(pod_level),
        &containers.into(),
        Path::new("/var/lib/kubelet/cpu_manager_state"),
    )
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn cpu_state(shared: &str, containers: &[(&str, &str)], of_pod: Option<&str>) -> CpuState {
    let mut state = CpuState {
        shared: cpus(shared),
        ..CpuState::default()
    };
    for (name, text) in containers {
        let of_pod = state.containers.entry("pod".to_owned()).or_default();
        of_pod.insert((*name).to_owned(), cpus(text));
    }
    if let Some(text) = of_pod {
        state.pods.insert("pod".to_owned(), cpus(text));
    }
    state
}

const BOTH: [(&str, &str); 2] = [("container1", "4-6"), ("container2", "1-3")];

/// `TestCheckpointStateRestore` of the CPU manager.
#[test]
fn cpu_states_of_all_formats_are_read() {
    let second = r#"{"policyName": "none", "defaultCPUSet": "1-3", "entries": {"pod": {"container1": "4-6",
        "container2": "1-3"}}, "checksum": 3610638499}"#;
    let first = r#"{"policyName": "none", "defaultCPUSet": "1-3", "entries": {"containerID1": "4-6",
        "containerID2": "1-3"}, "checksum": 3680390589}"#;
    let third = r#"{"policyName": "none", "defaultCPUSet": "1-3", "entries": {"pod": {"container1": "4-6",
        "container2": "1-3"}}, "podEntries": {"pod": {"cpuSet": "4-6"}}, "checksum": 2649431787}"#;
    let only_shared =
        r#"{"policyName": "none", "defaultCPUSet": "4-6", "entries": {}, "checksum": 354655845}"#;
    let without_entries = r#"{"policyName": "none", "defaultCPUSet": "1-3", "checksum": 1694838852}"#;
    let both = cpu_state("1-3", &BOTH, None);
    for (contents, pod_level, expected) in [
        (second, false, &both),
        (second, true, &both),
        (first, false, &both),
        (first, true, &both),
        (third, true, &cpu_state("1-3", &BOTH, Some("4-6"))),
        (only_shared, false, &cpu_state("4-6", &[], None)),
        (without_entries, false, &cpu_state("1-3", &[], None)),
    ] {
        assert_eq!(read_cpu(contents, pod_level).unwrap(), *expected, "{contents}");
    }
}

#[test]
fn cpu_states_that_cannot_be_used_are_refused() {
    let third_without_gate = r#"{"policyName": "none", "defaultCPUSet": "1-3", "podEntries": {"pod": {"cpuSet": "4-6"}},
        "checksum": 1}"#;
    for (contents, expected) in [
        (
            r#"{"policyName": "none", "defaultCPUSet": "4-6", "entries": {}, "checksum": 1337}"#,
            "checkpoint is corrupted",
        ),
        (third_without_gate, "checkpoint is corrupted"),
        ("{", "unexpected end of JSON input"),
        (
            r#"{"policyName": "other", "defaultCPUSet": "1-3", "entries": {}, "checksum": 1394507217}"#,
            r#"configured policy "none" differs from state checkpoint policy "other""#,
        ),
        (
            r#"{"policyName": "none", "defaultCPUSet": "1.3", "entries": {}, "checksum": 3021697696}"#,
            r#"could not parse default cpu set "1.3": strconv.Atoi: parsing "1.3": invalid syntax"#,
        ),
        (
            r#"{"policyName": "none", "defaultCPUSet": "1-3", "entries": {"pod": {"container1": "4-6",
                "container2": "asd"}}, "checksum": 962272150}"#,
            r#"could not parse cpuset "asd" for container "container2" in pod "pod": strconv.Atoi: parsing "asd": invalid syntax"#,
        ),
    ] {
        let error = read_cpu(contents, false).unwrap_err().to_string();
        let whole = format!(
            "could not restore state from checkpoint: {expected}, please drain this node and delete the CPU manager \
             checkpoint file \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet"
        );
        assert_eq!(error, whole);
    }
    let unknown = r#"{"policyName": "none", "defaultCpuSet": "1", "entries": {"unknown": "4"}}"#;
    let error = read_cpu(unknown, false).unwrap_err().to_string();
    assert!(
        error.contains("containerID 'unknown' not found in initial containers list"),
        "{error}"
    );
}

#[test]
fn cpu_states_are_written_as_the_kubelet_does() {
    let write = |state: &CpuState, pod_level| -> Value {
        let contents = write_cpu_state(state, CpuPolicy::None, gates(pod_level)).unwrap();
        serde_json::from_slice(&contents).unwrap()
    };
    let entries = json!({"pod": {"container1": "4-6", "container2": "1-3"}});
    assert_eq!(
        write(&cpu_state("1-3", &BOTH, None), false),
        json!({"policyName": "none", "defaultCpuSet": "1-3", "entries": entries, "checksum": 3610638499_u64})
    );
    assert_eq!(
        write(&cpu_state("1-3", &BOTH, Some("4-6")), true),
        json!({"policyName": "none", "defaultCpuSet": "1-3", "entries": entries,
            "podEntries": {"pod": {"cpuSet": "4-6"}}, "checksum": 2649431787_u64})
    );
    assert_eq!(
        write(&cpu_state("4-6", &[], None), false),
        json!({"policyName": "none", "defaultCpuSet": "4-6", "checksum": 354655845_u64})
    );
}

/// What the kubelet's tests read, with the policy that the kubelet has.
fn memory_file(pods: bool, checksum: u64) -> Value {
    let mut file = json!({
        "policyName": "static",
        "machineState": {"0": {
            "numberOfAssignments": 0,
            "memoryMap": {"memory": {"total": 2048, "systemReserved": 512, "allocatable": 1536, "reserved": 512,
                "free": 1024}},
            "cells": [],
        }},
        "entries": {"pod": {"container1": [{"numaAffinity": [0], "type": "memory", "size": 512}]}},
        "checksum": checksum,
    });
    if pods {
        file["podEntries"] =
            json!({"pod": {"memoryBlocks": [{"numaAffinity": [0], "type": "memory", "size": 512}]}});
    }
    file
}

fn read_memory(file: &Value, pod_level: bool) -> Result<MemoryState> {
    let path = Path::new("/var/lib/kubelet/memory_manager_state");
    read_memory_state(
        file.to_string().as_bytes(),
        MemoryPolicy::Static,
        gates(pod_level),
        path,
    )
}

/// `TestCheckpointStateRestore` of the memory manager. The files are of a policy `static`, which a kubelet does not have: that the
/// policy is what is refused shows that the checksum is right.
#[test]
fn checksums_of_memory_states_are_those_of_the_kubelet() {
    let other_policy =
        r#"[memorymanager] configured policy "Static" differs from state checkpoint policy "static""#;
    let corrupt =
        "checkpoint is corrupted, please drain this node and delete the memory manager checkpoint file";
    for (file, pod_level, expected) in [
        (memory_file(false, 4215593881), false, other_policy),
        (memory_file(false, 4215593881), true, other_policy),
        (memory_file(true, 1278640530), true, other_policy),
        (memory_file(true, 1278640530), false, corrupt),
        (memory_file(false, 101010), false, corrupt),
    ] {
        let error = read_memory(&file, pod_level).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn memory_states_survive_a_restart() {
    for pod_level in [false, true] {
        let mut file = memory_file(pod_level, 0);
        file["policyName"] = json!("Static");
        // A file without checksum is accepted in the first format.
        let mut state = read_memory(&file, false).unwrap();
        if pod_level {
            state.pods = BTreeMap::from([(
                "pod".to_owned(),
                state.blocks("pod", "container1").unwrap().to_vec(),
            )]);
        }
        let written = write_memory_state(&state, MemoryPolicy::Static, gates(pod_level)).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(read_memory(&written, pod_level).unwrap(), state);
        file["checksum"] = written["checksum"].clone();
        assert_eq!(written, file);
    }
}

#[test]
fn a_torn_write_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = StateFolder::new(folder.path());
    assert_eq!(store.read("cpu_manager_state").unwrap(), None);
    store.write("cpu_manager_state", b"old").unwrap();
    // What a crash in the middle of the next write leaves.
    std::fs::write(folder.path().join(".cpu_manager_state.new"), b"ne").unwrap();
    assert_eq!(store.read("cpu_manager_state").unwrap().unwrap(), b"old");
    store.write("cpu_manager_state", b"new").unwrap();
    assert_eq!(store.read("cpu_manager_state").unwrap().unwrap(), b"new");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
