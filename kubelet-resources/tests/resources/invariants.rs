//! What holds whatever pods come and go: nothing belongs to two containers, what is freed comes back, reserved CPUs are never
//! exclusive.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_resources::checkpoint::{read_cpu_state, read_memory_state, write_cpu_state, write_memory_state};
use kubelet_resources::cpu::CpuPolicy;
use kubelet_resources::memory::MemoryPolicy;
use kubelet_resources::topology::{TopologyPolicy, TopologyScope};
use kubelet_resources::{Allocator, CpuSet, Gates, Machine, ResourcesConfig, ResourcesState};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::pods::{config, container, machine, pod};

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    /// A pod comes.
    Add(PodShape),
    /// The n-th of the pods that were admitted ends.
    Remove(usize),
    /// The n-th of them ends, and a static pod with its UID comes.
    ComeBack(usize),
    /// The runtime has removed the init containers of the n-th of them, and it is admitted again.
    LoseInit(usize),
    /// The agent restarts.
    Restart,
}

#[derive(Clone, Debug)]
struct PodShape {
    init: Vec<(ContainerShape, bool)>,
    containers: Vec<ContainerShape>,
    /// Pod-level resources, in CPUs and GiB.
    of_pod: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct ContainerShape {
    milli_cpus: u64,
    mib: u64,
    huge_mib: u64,
    guaranteed: bool,
}

impl ContainerShape {
    fn build(&self, name: &str) -> Value {
        let mut resources = json!({
            "cpu": format!("{}m", self.milli_cpus),
            "memory": format!("{}Mi", self.mib),
        });
        if self.huge_mib > 0 {
            resources["hugepages-2Mi"] = json!(format!("{}Mi", self.huge_mib));
        }
        let mut container = container(name, &resources);
        if !self.guaranteed {
            container["resources"]["limits"]["cpu"] = json!(format!("{}m", self.milli_cpus + 1000));
        }
        container
    }
}

impl PodShape {
    fn build(&self, name: &str) -> Arc<Pod> {
        let init = self.init.iter().enumerate().map(|(index, (shape, sidecar))| {
            let mut container = shape.build(&format!("i{index}"));
            if *sidecar {
                container["restartPolicy"] = json!("Always");
            }
            container
        });
        let containers = self.containers.iter().enumerate();
        let containers = containers.map(|(index, shape)| shape.build(&format!("c{index}")));
        let pod = pod(name, &init.collect::<Vec<_>>(), &containers.collect::<Vec<_>>());
        let Some((cpus, gib)) = self.of_pod else {
            return pod;
        };
        let resources = json!({"cpu": cpus.to_string(), "memory": format!("{gib}Gi")});
        let mut pod = Arc::unwrap_or_clone(pod);
        let spec = pod.spec.as_mut().unwrap();
        spec.resources = serde_json::from_value(json!({"requests": resources, "limits": resources})).unwrap();
        Arc::new(pod)
    }
}

struct Node {
    machine: Machine,
    config: ResourcesConfig,
    allocator: Allocator,
    admitted: Vec<Arc<Pod>>,
}

impl Node {
    fn new(machine: Machine, config: ResourcesConfig) -> Option<Self> {
        let allocator = Allocator::new(&machine, &config, ResourcesState::default()).ok()?;
        Some(Self {
            machine,
            config,
            allocator,
            admitted: Vec::new(),
        })
    }

    fn apply(&mut self, number: usize, step: Step) {
        match step {
            Step::Add(shape) => {
                self.admit(shape.build(&format!("p{number}")));
            }
            Step::Remove(index) => _ = self.remove(index),
            Step::ComeBack(index) => {
                if let Some(pod) = self.remove(index) {
                    self.admit(pod);
                }
            }
            Step::LoseInit(index) => {
                if let Some(pod) = self.take(index) {
                    let mut left = Pod::clone(&pod);
                    let init = left.spec.as_mut().unwrap().init_containers.as_mut();
                    if let Some(init) = init {
                        init.retain(is_restartable_init_container);
                    }
                    let mut active = self.admitted.clone();
                    active.push(Arc::new(left));
                    self.allocator.remove_stale(&active);
                    self.admit(pod);
                }
            }
            Step::Restart => self.restart(),
        }
    }

    fn admit(&mut self, pod: Arc<Pod>) {
        if self.allocator.admit(&pod, Some(&self.admitted)).is_ok() {
            self.admitted.push(pod);
        }
        // Frees what a rejected pod was given.
        self.allocator.remove_stale(&self.admitted);
    }

    fn remove(&mut self, index: usize) -> Option<Arc<Pod>> {
        let pod = self.take(index);
        self.allocator.remove_stale(&self.admitted);
        pod
    }

    fn take(&mut self, index: usize) -> Option<Arc<Pod>> {
        let count = self.admitted.len();
        (count > 0).then(|| self.admitted.remove(index % count))
    }

    /// The state survives the files, and the pods get what they had.
    fn restart(&mut self) {
        let gates = self.config.gates;
        let path = std::path::Path::new("/");
        let cpu = write_cpu_state(self.allocator.cpu_state(), CpuPolicy::Static, gates).unwrap();
        let memory = write_memory_state(self.allocator.memory_state(), MemoryPolicy::Static, gates).unwrap();
        let mut state = ResourcesState::default();
        state.cpu = read_cpu_state(&cpu, CpuPolicy::Static, gates, &BTreeMap::new(), path).unwrap();
        state.memory = read_memory_state(&memory, MemoryPolicy::Static, gates, path).unwrap();
        let (cpu, memory) = (state.cpu.clone(), state.memory.clone());
        self.allocator = Allocator::new(&self.machine, &self.config, state).unwrap();
        for pod in &self.admitted {
            // Whether it is admitted again depends on the policy; nothing moves in any case.
            let _ = self.allocator.admit(pod, None);
        }
        assert_eq!(*self.allocator.cpu_state(), cpu);
        assert_eq!(*self.allocator.memory_state(), memory);
    }

    fn check(&self) {
        self.check_cpus();
        self.check_memory();
    }

    fn check_cpus(&self) {
        let state = self.allocator.cpu_state();
        let all: CpuSet = self
            .machine
            .nodes
            .iter()
            .flat_map(|node| node.cores.iter().flat_map(|core| core.threads.iter().copied()))
            .collect();
        let allocatable = self.allocator.allocatable_cpus();
        let reserved = all.difference(&allocatable);
        let mut taken = CpuSet::new();
        for pod in &self.admitted {
            let uid = pod.uid_str();
            let spec = pod.spec.as_ref().unwrap();
            let ends = |name: &str| {
                let mut init = spec.init_containers.iter().flatten();
                init.any(|init| init.name == name && !is_restartable_init_container(init))
            };
            let mut of_pod = CpuSet::new();
            let mut at_one_time = CpuSet::new();
            for container in pod.all_containers() {
                let Some(cpus) = state.allocated(uid, &container.name) else {
                    continue;
                };
                of_pod = of_pod.union(cpus);
                // Containers of a pod with pod-level resources share what is left of its CPUs.
                let own = self.allocator.has_exclusive_cpus(pod, container);
                if own && !ends(&container.name) {
                    assert!(at_one_time.is_disjoint(cpus), "{state:?}");
                    at_one_time = at_one_time.union(cpus);
                }
            }
            if let Some(cpus) = state.pods.get(uid) {
                assert!(of_pod.is_subset(cpus), "{state:?}");
                of_pod = cpus.clone();
            }
            assert!(taken.is_disjoint(&of_pod), "{state:?}");
            taken = taken.union(&of_pod);
        }
        assert!(taken.is_disjoint(&reserved), "{state:?}");
        assert!(taken.is_disjoint(&state.shared), "{state:?}");
        let missing = all.difference(&taken.union(&state.shared));
        let strict = self.config.cpu.options.contains_key("strict-cpu-reservation");
        assert_eq!(missing, if strict { reserved } else { CpuSet::new() });
    }

    fn check_memory(&self) {
        let state = self.allocator.memory_state();
        let mut allocated: BTreeMap<&str, u64> = BTreeMap::new();
        for (uid, containers) in &state.containers {
            assert!(self.admitted.iter().any(|pod| pod.uid_str() == uid));
            let blocks: Vec<_> = match state.pods.get(uid) {
                Some(blocks) => blocks.iter().collect(),
                None => containers.values().flatten().collect(),
            };
            for block in blocks {
                *allocated.entry(&block.resource).or_default() += block.size;
            }
        }
        let mut reserved: BTreeMap<&str, u64> = BTreeMap::new();
        for node in state.nodes.values() {
            for (resource, table) in &node.memory {
                assert_eq!(table.free + table.reserved, table.allocatable, "{state:?}");
                *reserved.entry(resource).or_default() += table.reserved;
            }
        }
        reserved.retain(|_, size| *size > 0);
        allocated.retain(|_, size| *size > 0);
        assert_eq!(allocated, reserved, "{state:#?}");
    }
}

fn container_shape() -> impl Strategy<Value = ContainerShape> {
    let milli_cpus =
        prop_oneof![4 => (1_u64..7).prop_map(|cpus| 1000 * cpus), 1 => Just(500), 1 => Just(1500)];
    let mib = prop_oneof![Just(256_u64), Just(1024), Just(4096), Just(9216)];
    let huge = prop_oneof![3 => Just(0_u64), 1 => Just(512)];
    (milli_cpus, mib, huge, prop::bool::weighted(0.9)).prop_map(|(milli_cpus, mib, huge_mib, guaranteed)| {
        ContainerShape {
            milli_cpus,
            mib,
            huge_mib,
            guaranteed,
        }
    })
}

fn pod_shape() -> impl Strategy<Value = PodShape> {
    let init = prop::collection::vec((container_shape(), any::<bool>()), 0..3);
    let containers = prop::collection::vec(container_shape(), 1..4);
    let of_pod = prop::option::weighted(0.3, (2_u64..12, 2_u64..12));
    (init, containers, of_pod).prop_map(|(init, containers, of_pod)| PodShape {
        init,
        containers,
        of_pod,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => pod_shape().prop_map(Step::Add),
        3 => (0_usize..8).prop_map(Step::Remove),
        1 => (0_usize..8).prop_map(Step::ComeBack),
        1 => (0_usize..8).prop_map(Step::LoseInit),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..12)
}

const OPTIONS: [&[&str]; 7] = [
    &[],
    &["full-pcpus-only"],
    &["distribute-cpus-across-numa"],
    &["distribute-cpus-across-numa", "full-pcpus-only"],
    &["align-by-socket"],
    &["distribute-cpus-across-cores", "strict-cpu-reservation"],
    &["prefer-align-cpus-by-uncorecache", "strict-cpu-reservation"],
];

fn setting() -> impl Strategy<Value = (Machine, ResourcesConfig)> {
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ];
    let shape = (1_usize..5, 2_usize..9, 1_usize..3, 1_usize..3);
    let policy = (prop::sample::select(policies.to_vec()), any::<bool>());
    (
        shape,
        policy,
        prop::sample::select(OPTIONS.to_vec()),
        any::<bool>(),
    )
        .prop_map(
            |((nodes, cores, threads, nodes_per_socket), (policy, of_pods), options, pod_level)| {
                let scope = if of_pods {
                    TopologyScope::Pod
                } else {
                    TopologyScope::Container
                };
                let mut config = config(policy, scope);
                config.gates = Gates::default();
                config.gates.cpu_policy_alpha_options = true;
                config.gates.pod_level_resource_managers = pod_level;
                let options = options
                    .iter()
                    .map(|option| ((*option).to_owned(), "true".to_owned()));
                config.cpu.options = options.collect();
                (machine(nodes, cores, threads, nodes_per_socket), config)
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_belongs_to_two_and_all_comes_back((machine, config) in setting(), steps in steps()) {
        // Some options do not suit some machines.
        let Some(mut node) = Node::new(machine, config) else { return Ok(()) };
        let before = (node.allocator.cpu_state().clone(), node.allocator.memory_state().clone());
        for (number, step) in steps.into_iter().enumerate() {
            node.apply(number, step);
            node.check();
        }
        node.admitted.clear();
        node.allocator.remove_stale(&node.admitted);
        let after = (node.allocator.cpu_state().clone(), node.allocator.memory_state().clone());
        prop_assert_eq!(after, before);
    }
}
