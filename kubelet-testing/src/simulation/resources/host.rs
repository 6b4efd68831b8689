//! The machine of a simulated node: its CPUs and memory, its plugins, and the state files of its agents.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;
use kubelet_resources::cpu::CpuPolicy;
use kubelet_resources::devices::v1beta1::ContainerAllocateResponse;
use kubelet_resources::memory::{MemoryPolicy, MemoryReservation};
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_resources::{Allocator, Core, CpuSet, Machine, NumaNode, ResourcesConfig, ResourcesState};
use tokio::task::AbortHandle;

use super::state_files::StateFiles;
use super::{DRIVER, GPU, NIC};
use crate::MemoryDevicePlugin;
use crate::dra_driver::{MemoryDra, MemoryDraPlugins};
use crate::memory_cri::{MemoryCri, hash};
use crate::simulation::order::Order;

/// How many CPUs each machine has.
const CPUS: usize = 8;
/// The memory of each machine, and what is reserved of it, on its first node.
const MEMORY: u64 = 8 << 30;
const RESERVED_MEMORY: u64 = 512 << 20;
/// NUMA nodes, cores of a node, CPUs of a core, nodes of a socket.
const SHAPES: [(usize, usize, usize, usize); 5] = [
    (1, 4, 2, 1),
    (2, 4, 1, 1),
    (2, 2, 2, 1),
    (4, 2, 1, 2),
    (1, 8, 1, 1),
];
/// Where the driver of the claims serves.
const ENDPOINT: &str = "/claims.sock";

/// The machine of a simulated node. It outlives the node's agents. Clones share it.
#[derive(Clone)]
pub(crate) struct SimulatedMachine {
    pub(super) machine: Arc<Machine>,
    pub(super) config: Arc<ResourcesConfig>,
    pub(super) plugins: Arc<[MemoryDevicePlugin]>,
    pub(super) driver: MemoryDra,
    pub(super) drivers: MemoryDraPlugins,
    pub(super) files: Arc<StateFiles>,
    /// Knows the pods.
    pub(super) order: Order,
}

impl fmt::Debug for SimulatedMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedMachine")
    }
}

impl SimulatedMachine {
    /// The machine, policies and options that follow from the seed, with state files below `root_dir`.
    pub(in crate::simulation) fn drawn(seed: u64, root_dir: &Path, order: &Order) -> Self {
        let mut rng = fastrand::Rng::with_seed(hash(seed, "machine"));
        let shape = SHAPES[rng.usize(..SHAPES.len())];
        let machine = machine(shape);
        let config = loop {
            let config = config(&machine, &mut rng);
            // Some options exclude each other.
            if Allocator::new(&machine, &config, ResourcesState::default()).is_ok() {
                break config;
            }
        };
        let config = Arc::new(config);
        let (gpus, nics) = (plugin(GPU, 6, shape.0), plugin(NIC, 4, 1));
        let gpus = match rng.bool() {
            true => gpus.preferring(|request| request.available_device_i_ds.iter().rev().cloned().collect()),
            false => gpus.with_pre_start(),
        };
        let this = Self {
            files: Arc::new(StateFiles::new(
                root_dir,
                hash(seed, "crashes"),
                config.clone(),
                order.clone(),
            )),
            machine: Arc::new(machine),
            config,
            plugins: [gpus, nics].into(),
            driver: MemoryDra::new(DRIVER),
            drivers: MemoryDraPlugins::new(),
            order: order.clone(),
        };
        this.serve_claims(true);
        this
    }

    /// The driver of the claims serves, or not.
    pub(in crate::simulation) fn serve_claims(&self, serves: bool) {
        match serves {
            true => self.drivers.serve(ENDPOINT, &self.driver),
            false => self.drivers.stop(ENDPOINT),
        }
    }

    pub(super) fn endpoint(&self) -> &'static str {
        ENDPOINT
    }

    /// Checks what is done with the containers of this runtime.
    pub(in crate::simulation) fn watch(&self, runtime: &MemoryCri) {
        let running = runtime.clone();
        self.driver
            .check_unprepares(move |claim| super::checks::users_of(&running, claim));
    }

    /// An agent starts. A write of a state file may end it.
    pub(in crate::simulation) fn agent_starts(&self, agent: AbortHandle) {
        self.files.agent_starts(agent);
    }

    /// Whether the agent has crashed while it wrote a state file. `true` once.
    pub(in crate::simulation) fn take_crash(&self) -> Option<String> {
        self.files.take_crash()
    }

    /// Sets what the machine has in the node's object.
    pub(in crate::simulation) fn offer(&self, node: &mut Node) {
        let reserved = self.config.cpu.reserved_cpus.len();
        let status = node.status.get_or_insert_default();
        let devices = self
            .plugins
            .iter()
            .map(|plugin| (plugin.resource(), plugin.device_ids().len()));
        let devices: Vec<(&str, String)> = devices.map(|(name, count)| (name, count.to_string())).collect();
        let lists = [
            (&mut status.capacity, 0, 0),
            (&mut status.allocatable, reserved, RESERVED_MEMORY),
        ];
        for (list, reserved_cpus, reserved_memory) in lists {
            let list = list.get_or_insert_default();
            list.insert("cpu".to_owned(), Quantity((CPUS - reserved_cpus).to_string()));
            list.insert(
                "memory".to_owned(),
                Quantity((MEMORY - reserved_memory).to_string()),
            );
            let devices = devices.iter().cloned();
            list.extend(devices.map(|(name, count)| (name.to_owned(), Quantity(count))));
        }
    }
}

fn machine((nodes, cores, threads, nodes_per_socket): (usize, usize, usize, usize)) -> Machine {
    let all_cores = nodes * cores;
    let core = |node: usize, number: usize| {
        let first = node * cores + number;
        Core {
            id: number,
            threads: (0..threads).map(|thread| first + thread * all_cores).collect(),
            uncore_cache: Some(first / 2),
            socket: node / nodes_per_socket,
        }
    };
    let node = |id| NumaNode {
        id,
        memory: MEMORY / nodes as u64,
        huge_pages: Vec::new(),
        cores: (0..cores).map(|number| core(id, number)).collect(),
        distances: Some(
            (0..nodes)
                .map(|other| if other == id { 10 } else { 20 })
                .collect(),
        ),
    };
    Machine {
        nodes: (0..nodes).map(node).collect(),
    }
}

/// Static policies with one core reserved; how topology counts, and one option or none, are drawn.
fn config(machine: &Machine, rng: &mut fastrand::Rng) -> ResourcesConfig {
    const OPTIONS: [&str; 8] = [
        "",
        "",
        "full-pcpus-only",
        "distribute-cpus-across-numa",
        "align-by-socket",
        "distribute-cpus-across-cores",
        "strict-cpu-reservation",
        "prefer-align-cpus-by-uncorecache",
    ];
    let mut config = ResourcesConfig::default();
    config.gates.cpu_policy_alpha_options = true;
    config.cpu.policy = CpuPolicy::Static;
    let option = OPTIONS[rng.usize(..OPTIONS.len())];
    if !option.is_empty() {
        config.cpu.options = [(option.to_owned(), "true".to_owned())].into();
    }
    let cores: Vec<&Core> = machine.nodes.iter().flat_map(|node| &node.cores).collect();
    let reserved = cores[rng.usize(..cores.len())];
    let mut cpus = CpuSet::new();
    reserved.threads.iter().for_each(|cpu| cpus.insert(*cpu));
    config.cpu.reserved = i64::try_from(cpus.len()).ok().map(Amount::from_units);
    config.cpu.reserved_cpus = cpus;
    config.memory.policy = MemoryPolicy::Static;
    let memory = BTreeMap::from([("memory".to_owned(), Quantity(RESERVED_MEMORY.to_string()))]);
    config.memory.node_reserved.clone_from(&memory);
    config.memory.reserved = vec![MemoryReservation {
        numa_node: 0,
        limits: memory,
    }];
    config.topology_policy = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ][rng.usize(..4)];
    config.topology_scope = [TopologyScope::Container, TopologyScope::Pod][rng.usize(..2)];
    config
}

/// A plugin with this many devices, spread over the nodes. A container gets the ids of its devices in a variable.
fn plugin(resource: &str, count: usize, nodes: usize) -> MemoryDevicePlugin {
    let variable = super::checks::variable(resource);
    let mut plugin = MemoryDevicePlugin::new(resource).answering(move |ids| ContainerAllocateResponse {
        envs: [(variable.clone(), Vec::from_iter(ids.clone()).join(","))].into(),
        ..ContainerAllocateResponse::default()
    });
    for number in 0..count {
        plugin = plugin.device(&format!("dev-{number}"), i64::try_from(number % nodes));
    }
    plugin
}
