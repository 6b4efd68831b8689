//! The decisions, held to recorded runs of the kubelet v1.36: the CPU, memory and topology managers together, with a hint
//! provider of devices beside them.
//!
//! `KUBELET_RESOURCES_RECORDING` names another recording in the same form.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::PodExt;
use kubelet_core::quantity::Amount;
use kubelet_resources::cpu::{CpuConfig, CpuPolicy};
use kubelet_resources::memory::{MemoryConfig, MemoryPolicy, MemoryReservation};
use kubelet_resources::topology::{
    HintProvider, ResourceHints, TopologyHint, TopologyOptions, TopologyPolicy, TopologyScope,
};
use kubelet_resources::{
    Allocator, BoxError, Gates, Machine, NumaSet, ResourcesConfig, ResourcesState, Result,
};
use serde::Deserialize;

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/data/resource-managers.jsonl.gz"
);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Case {
    case: u64,
    topology: Machine,
    cpu_manager_policy_alpha_options: bool,
    cpu_manager_policy: String,
    cpu_manager_policy_options: BTreeMap<String, String>,
    memory_manager_policy: String,
    reserved_memory: Option<Vec<Reservation>>,
    #[serde(rename = "reservedSystemCPUs")]
    reserved_system_cpus: String,
    node_allocatable_reservation: BTreeMap<String, Quantity>,
    topology_manager_policy: String,
    topology_manager_scope: String,
    topology_manager_policy_options: BTreeMap<String, String>,
    operations: Option<Vec<Operation>>,
    error: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reservation {
    numa_node: usize,
    limits: BTreeMap<String, Quantity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    pod: Option<Pod>,
    remove: Option<String>,
    #[serde(default)]
    device_hints: DeviceHints,
    admit: bool,
    reason: Option<String>,
    message: Option<String>,
    containers: Option<Vec<Seen>>,
    shared_pool: String,
}

/// By `uid/container` or `uid`, and then by resource.
type DeviceHints = BTreeMap<String, BTreeMap<String, Option<Vec<Hint>>>>;

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hint {
    numa_nodes: Option<Vec<usize>>,
    preferred: bool,
}

/// What a container has after the admission.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    name: String,
    #[serde(rename = "exclusiveCPUs")]
    exclusive_cpus: String,
    cpu_affinity: String,
    memory: Vec<Block>,
    #[serde(rename = "memoryNUMANodes")]
    memory_numa_nodes: Vec<usize>,
    merged_hint: Option<Vec<usize>>,
    merged_preferred: bool,
}

#[derive(Debug, PartialEq, PartialOrd, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block {
    numa_nodes: Vec<usize>,
    #[serde(rename = "type")]
    resource: String,
    size: u64,
}

/// Gives the recorded hints.
#[derive(Clone, Default)]
struct Devices(Arc<Mutex<DeviceHints>>);

impl Devices {
    fn hints(&self, key: &str) -> ResourceHints {
        let hints = self.0.lock().unwrap().get(key).cloned().unwrap_or_default();
        let hint = |hint: Hint| TopologyHint {
            nodes: hint.numa_nodes.map(|nodes| NumaSet::of(nodes).unwrap()),
            preferred: hint.preferred,
        };
        let of_resource = |hints: Option<Vec<Hint>>| hints.map(|hints| hints.into_iter().map(hint).collect());
        let resources = hints.into_iter();
        resources
            .map(|(resource, hints)| (resource, of_resource(hints)))
            .collect()
    }
}

impl HintProvider for Devices {
    fn container_hints(&mut self, pod: &Arc<Pod>, container: &Container) -> ResourceHints {
        self.hints(&format!("{}/{}", pod.uid_str(), container.name))
    }

    fn pod_hints(&mut self, pod: &Arc<Pod>) -> ResourceHints {
        self.hints(pod.uid_str())
    }

    fn allocate(&mut self, _: &Arc<Pod>, _: &Container, _: TopologyHint) -> Result<(), BoxError> {
        Ok(())
    }
}

impl Case {
    pub(crate) fn config(&self) -> Result<ResourcesConfig> {
        let mut config = ResourcesConfig::default();
        config.gates = Gates::default();
        config.gates.cpu_policy_alpha_options = self.cpu_manager_policy_alpha_options;
        let reserved = self.node_allocatable_reservation.get("cpu");
        config.cpu = CpuConfig::default();
        config.cpu.policy = CpuPolicy::parse(&self.cpu_manager_policy)?;
        config.cpu.options = self.cpu_manager_policy_options.clone();
        config.cpu.reserved_cpus = self.reserved_system_cpus.parse().unwrap();
        config.cpu.reserved = reserved.map(|reserved| Amount::try_from(reserved).unwrap());
        config.memory = MemoryConfig::default();
        config.memory.policy = MemoryPolicy::parse(&self.memory_manager_policy)?;
        config.memory.node_reserved = self.node_allocatable_reservation.clone();
        let reservations = self.reserved_memory.iter().flatten();
        config.memory.reserved = reservations
            .map(|reservation| MemoryReservation {
                numa_node: reservation.numa_node,
                limits: reservation.limits.clone(),
            })
            .collect();
        config.topology_policy = TopologyPolicy::parse(&self.topology_manager_policy)?;
        config.topology_scope = TopologyScope::parse(&self.topology_manager_scope)?;
        config.topology_options = TopologyOptions::parse(&self.topology_manager_policy_options)?;
        Ok(config)
    }
}

impl Case {
    /// Why each option of the CPU manager would be refused if it were the only one.
    fn refusals(&self) -> Vec<String> {
        let refused = |(name, value): (&String, &String)| {
            let mut config = self.config().unwrap();
            config.cpu.options = BTreeMap::from([(name.clone(), value.clone())]);
            let allocator = Allocator::new(&self.topology, &config, ResourcesState::default());
            allocator.err().map(|error| error.to_string())
        };
        self.cpu_manager_policy_options
            .iter()
            .filter_map(refused)
            .collect()
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let path = std::env::var("KUBELET_RESOURCES_RECORDING").unwrap_or_else(|_| RECORDING.to_owned());
    let lines = BufReader::new(GzDecoder::new(File::open(path).unwrap())).lines();
    lines
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect()
}

fn seen(allocator: &Allocator, pod: &Pod) -> Vec<Seen> {
    let uid = pod.uid_str();
    let (cpu, memory) = (allocator.cpu_state(), allocator.memory_state());
    let of = |container: &Container| {
        let name = &container.name;
        let blocks = memory.blocks(uid, name).unwrap_or_default().iter();
        let hint = allocator.merged_hint(uid, name);
        Seen {
            name: name.clone(),
            exclusive_cpus: cpu
                .allocated(uid, name)
                .map(ToString::to_string)
                .unwrap_or_default(),
            cpu_affinity: cpu.cpus(uid, name).to_string(),
            memory: sorted(
                blocks
                    .map(|block| Block {
                        numa_nodes: block.nodes.clone(),
                        resource: block.resource.clone(),
                        size: block.size,
                    })
                    .collect(),
            ),
            memory_numa_nodes: memory.numa_nodes(uid, name),
            merged_hint: hint.nodes.map(|nodes| nodes.iter().collect()),
            merged_preferred: hint.preferred,
        }
    };
    pod.all_containers().map(of).collect()
}

/// The kubelet's order of blocks is random.
fn sorted(mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.sort_by(|a, b| a.partial_cmp(b).unwrap());
    blocks
}

/// Runs the case. `Err`: what differs.
fn run(case: Case) -> Result<(), String> {
    let devices = Devices::default();
    let new = || Allocator::new(&case.topology, &case.config()?, ResourcesState::default());
    let mut allocator = match (new(), &case.error) {
        (Ok(allocator), None) => allocator.with_provider(Box::new(devices.clone())),
        (Err(error), Some(expected)) if error.to_string() == *expected => return Ok(()),
        // The kubelet goes through the options in random order.
        (Err(_), Some(expected)) if case.refusals().contains(expected) => return Ok(()),
        (Ok(_), Some(expected)) => return Err(format!("accepted, expected {expected}")),
        (Err(error), expected) => return Err(format!("{error}, expected {expected:?}")),
    };
    let mut active: Vec<Arc<Pod>> = Vec::new();
    for (step, operation) in case.operations.into_iter().flatten().enumerate() {
        if let Some(name) = operation.remove {
            active.retain(|pod| pod.metadata.name.as_deref() != Some(&name));
        }
        if let Some(pod) = operation.pod {
            let pod = Arc::new(pod);
            *devices.0.lock().unwrap() = operation.device_hints;
            let admitted = allocator.admit(&pod, Some(&active));
            let rejection = admitted.err().map(|error| error.rejection());
            let (reason, message) = rejection
                .map(|rejection| (rejection.reason, rejection.message))
                .unzip();
            let expected = (operation.reason, operation.message);
            if operation.admit != reason.is_none() || (reason.clone(), message.clone()) != expected {
                return Err(format!(
                    "step {step}: {reason:?} {message:?}, expected {expected:?}"
                ));
            }
            if operation.admit {
                active.push(Arc::clone(&pod));
            }
            if let Some(mut expected) = operation.containers {
                for container in &mut expected {
                    container.memory = sorted(std::mem::take(&mut container.memory));
                }
                let seen = seen(&allocator, &pod);
                if seen != expected {
                    return Err(format!("step {step}: {seen:#?}, expected {expected:#?}"));
                }
            }
        }
        let shared = allocator.cpu_state().shared.to_string();
        if shared != operation.shared_pool {
            return Err(format!(
                "step {step}: shared {shared}, expected {}",
                operation.shared_pool
            ));
        }
    }
    Ok(())
}

#[test]
fn decides_as_recorded() {
    let cases = cases();
    let total = cases.len();
    let failures: Vec<String> = cases
        .into_iter()
        .filter_map(|case| {
            let number = case.case;
            run(case)
                .err()
                .map(|difference| format!("case {number}: {difference}"))
        })
        .collect();
    let shown = failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        failures.is_empty(),
        "{} of {total} differ, the first ones:\n{shown}",
        failures.len()
    );
}
