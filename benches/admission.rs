//! The admission of a pod by the topology, CPU, memory and device managers: 2 sockets of 64 cores of 2 CPUs, 2 to 8 NUMA nodes, policy
//! `restricted`. The pod requests CPUs, memory, and devices of two plugins with 64 and 256 devices.
//!
//! `cargo bench -p benches --bench admission`
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::expect_used, reason = "a bench ends where it cannot go on")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::quantity::Amount;
use kubelet_resources::cpu::CpuPolicy;
use kubelet_resources::devices::{Choice, Device, DeviceState};
use kubelet_resources::memory::{MemoryPolicy, MemoryReservation};
use kubelet_resources::topology::{HintProvider, ResourceHints, TopologyHint, TopologyPolicy};
use kubelet_resources::{
    Allocator, BoxError, Core, Machine, NumaNode, NumaSet, ResourcesConfig, ResourcesState,
};
use serde_json::{Value, from_value, json};

const CORES: usize = 128;
const MEMORY: u64 = 512 << 30;
const RESOURCES: [(&str, usize); 2] = [("example.com/gpu", 64), ("example.com/nic", 256)];

fn machine(nodes: usize) -> Machine {
    let of_node = CORES / nodes;
    let core = |number: usize| Core {
        id: number % 64,
        threads: vec![number, number + CORES],
        uncore_cache: None,
        socket: number / 64,
    };
    let node = |id: usize| NumaNode {
        id,
        memory: MEMORY / nodes as u64,
        cores: (id * of_node..(id + 1) * of_node).map(core).collect(),
        distances: Some(
            (0..nodes)
                .map(|other| if other == id { 10 } else { 20 })
                .collect(),
        ),
        ..NumaNode::default()
    };
    Machine {
        nodes: (0..nodes).map(node).collect(),
    }
}

fn config() -> ResourcesConfig {
    let quantities = |list: Value| from_value(list).expect("quantities");
    let mut config = ResourcesConfig::default();
    config.cpu.policy = CpuPolicy::Static;
    config.cpu.reserved = Some(Amount::from_units(2));
    config.memory.policy = MemoryPolicy::Static;
    config.memory.node_reserved = quantities(json!({"cpu": "2", "memory": "1Gi"}));
    config.memory.reserved = vec![MemoryReservation {
        numa_node: 0,
        limits: quantities(json!({"memory": "1Gi"})),
    }];
    config.topology_policy = TopologyPolicy::Restricted;
    config
}

/// Devices whose plugins answer at once.
struct Devices(DeviceState);

impl Devices {
    fn new(nodes: usize) -> Self {
        let mut state = DeviceState::new(NumaSet::of(0..nodes).expect("few nodes"));
        for (resource, count) in RESOURCES {
            let device = |number: usize| {
                let device = Device {
                    healthy: true,
                    nodes: Some(vec![i64::try_from(number % nodes).expect("few nodes")]),
                };
                (format!("dev-{number}"), device)
            };
            state.report(resource, (0..count).map(device).collect());
        }
        Self(state)
    }
}

impl HintProvider for Devices {
    fn container_hints(&mut self, pod: &Arc<Pod>, container: &Container) -> ResourceHints {
        self.0.remove_stale(std::slice::from_ref(pod));
        self.0.container_hints(pod, container)
    }

    fn pod_hints(&mut self, pod: &Arc<Pod>) -> ResourceHints {
        self.0.pod_hints(pod)
    }

    fn allocate(
        &mut self,
        pod: &Arc<Pod>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<(), BoxError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for (resource, count) in self.0.requests(container) {
            let choice = self
                .0
                .choose(uid, &container.name, &resource, count, hint, false)?;
            let ids = match choice {
                Choice::Devices(ids) => ids,
                Choice::Ask(request) => request.answer(&BTreeSet::new())?,
                _ => continue,
            };
            self.0.allocate(uid, &container.name, &resource, &ids, Vec::new());
        }
        self.0.container_done(pod, container);
        Ok(())
    }
}

fn pod(number: u64) -> Arc<Pod> {
    let amounts = json!({"cpu": "4", "memory": "8Gi", RESOURCES[0].0: "2", RESOURCES[1].0: "4"});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}});
    let metadata = json!({"name": "p", "namespace": "default", "uid": format!("uid-{number}")});
    let pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
    Arc::new(from_value(pod).expect("a pod"))
}

fn admission(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admission");
    for nodes in [2, 4, 8] {
        let machine = machine(nodes);
        let allocator = Allocator::new(&machine, &config(), ResourcesState::default()).expect("a machine");
        let mut allocator = allocator.with_provider(Box::new(Devices::new(nodes)));
        // Each pod replaces the one before.
        let pods: BTreeMap<u64, Arc<Pod>> = (0..2).map(|number| (number, pod(number))).collect();
        let mut number = 0;
        group.bench_function(format!("{nodes} NUMA nodes"), |bencher| {
            bencher.iter(|| {
                number += 1;
                let pod = &pods[&(number % 2)];
                allocator
                    .admit(pod, Some(std::slice::from_ref(pod)))
                    .expect("it fits")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, admission);
criterion_main!(benches);
