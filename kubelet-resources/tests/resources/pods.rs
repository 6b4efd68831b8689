//! Machines and pods for the tests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::quantity::Amount;
use kubelet_resources::cpu::CpuPolicy;
use kubelet_resources::memory::{MemoryPolicy, MemoryReservation};
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_resources::{Core, HugePages, Machine, NumaNode, ResourcesConfig};
use serde_json::{Value, json};

pub(crate) const GIB: u64 = 1 << 30;

/// Nodes with this many cores of this many CPUs, each with 8 GiB of memory and 1 GiB more in huge pages. Each node is a socket,
/// or two of them are.
pub(crate) fn machine(nodes: usize, cores: usize, threads: usize, nodes_per_socket: usize) -> Machine {
    let all_cores = nodes * cores;
    let core = |node: usize, core: usize| {
        let first = node * cores + core;
        Core {
            id: core,
            threads: (0..threads).map(|thread| first + thread * all_cores).collect(),
            uncore_cache: Some(first / 4),
            socket: node / nodes_per_socket,
        }
    };
    let node = |id| NumaNode {
        id,
        memory: 9 * GIB,
        huge_pages: vec![HugePages {
            size_kib: 2048,
            count: 512,
        }],
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

/// Static policies; one CPU and 1 GiB of node 0 are reserved.
pub(crate) fn config(policy: TopologyPolicy, scope: TopologyScope) -> ResourcesConfig {
    let quantities = |list: Value| serde_json::from_value(list).unwrap();
    let mut config = ResourcesConfig::default();
    config.cpu.policy = CpuPolicy::Static;
    config.cpu.reserved = Some(Amount::from_units(1));
    config.memory.policy = MemoryPolicy::Static;
    config.memory.node_reserved = quantities(json!({"cpu": "1", "memory": "1Gi"}));
    config.memory.reserved = vec![MemoryReservation {
        numa_node: 0,
        limits: quantities(json!({"memory": "1Gi"})),
    }];
    config.topology_policy = policy;
    config.topology_scope = scope;
    config
}

/// A container with limits that equal its requests.
pub(crate) fn container(name: &str, resources: &Value) -> Value {
    json!({"name": name, "image": "image", "resources": {"requests": resources, "limits": resources}})
}

pub(crate) fn pod(name: &str, init: &[Value], containers: &[Value]) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
        "spec": {"initContainers": init, "containers": containers},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A guaranteed pod with one container `c`.
pub(crate) fn simple_pod(name: &str, cpu: &str, memory: &str) -> Arc<Pod> {
    pod(
        name,
        &[],
        &[container("c", &json!({"cpu": cpu, "memory": memory}))],
    )
}
