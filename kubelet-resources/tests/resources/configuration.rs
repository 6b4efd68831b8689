//! Settings that are refused, with the kubelet's texts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;
use kubelet_resources::cpu::{CpuPolicy, CpuPolicyOptions};
use kubelet_resources::memory::{MemoryPolicy, MemoryReservation};
use kubelet_resources::topology::{TopologyOptions, TopologyPolicy, TopologyScope};
use kubelet_resources::{Allocator, CpuSet, Gates, Machine, ResourcesConfig, ResourcesState};

use crate::pods::{config, machine};

fn options(options: &[(&str, &str)]) -> BTreeMap<String, String> {
    let options = options.iter();
    options
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn refusal(machine: &Machine, config: &ResourcesConfig) -> String {
    let allocator = Allocator::new(machine, config, ResourcesState::default());
    allocator.err().unwrap().to_string()
}

fn plain() -> ResourcesConfig {
    config(TopologyPolicy::None, TopologyScope::Container)
}

/// `TestPolicyOptionsAvailable`, `TestPolicyOptionsCompatibility`
#[test]
fn options_of_the_cpu_manager_depend_on_gates_and_on_each_other() {
    let mut alpha = Gates::default();
    alpha.cpu_policy_alpha_options = true;
    let mut no_beta = Gates::default();
    no_beta.cpu_policy_beta_options = false;
    for (list, gates, expected) in [
        (
            &[("unknown", "true")][..],
            alpha,
            "unknown CPU Manager Policy option: \"unknown\"",
        ),
        (
            &[("align-by-socket", "true")],
            Gates::default(),
            "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided",
        ),
        (
            &[("distribute-cpus-across-numa", "true")],
            no_beta,
            "CPU Manager Policy Beta-level Options not enabled, but option \"distribute-cpus-across-numa\" provided",
        ),
        (
            &[("full-pcpus-only", "yes")],
            alpha,
            "bad value for option \"full-pcpus-only\": strconv.ParseBool: parsing \"yes\": invalid syntax",
        ),
        (
            &[("full-pcpus-only", "true"), ("distribute-cpus-across-cores", "1")],
            alpha,
            "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
        ),
    ] {
        let error = CpuPolicyOptions::parse(&options(list), gates)
            .unwrap_err()
            .to_string();
        assert_eq!(error, expected);
    }
    let all = options(&[
        ("full-pcpus-only", "T"),
        ("strict-cpu-reservation", "0"),
        ("align-by-socket", "TRUE"),
    ]);
    let parsed = CpuPolicyOptions::parse(&all, alpha).unwrap();
    assert!(parsed.full_physical_cpus_only && parsed.align_by_socket && !parsed.strict_reservation);
}

/// `TestValidateStaticPolicyOptions`, `TestNonePolicyOptions`, `TestCPUManagerGenerate`
#[test]
fn the_cpu_manager_refuses_what_does_not_suit() {
    let machine = machine(2, 4, 2, 1);
    let mut by_socket = config(TopologyPolicy::SingleNumaNode, TopologyScope::Container);
    by_socket.gates.cpu_policy_alpha_options = true;
    by_socket.cpu.options = options(&[("align-by-socket", "true")]);
    assert!(
        refusal(&machine, &by_socket).contains("Topolgy manager single-numa-node policy is incompatible")
    );

    // Two sockets on one NUMA node.
    by_socket.topology_policy = TopologyPolicy::None;
    let mut one_node = machine.clone();
    let second = one_node.nodes.remove(1);
    one_node.nodes[0].cores.extend(second.cores);
    assert!(refusal(&one_node, &by_socket).contains("number of sockets are more than number of NUMA"));

    let mut none = plain();
    none.cpu.policy = CpuPolicy::None;
    none.cpu.options = options(&[("full-pcpus-only", "true"), ("a", "b")]);
    assert_eq!(
        refusal(&machine, &none),
        "new none policy error: None policy: received unsupported options=map[a:b full-pcpus-only:true]"
    );

    let mut reserved = plain();
    reserved.cpu.reserved = None;
    assert_eq!(
        refusal(&machine, &reserved),
        "[cpumanager] unable to determine reserved CPU resources for static policy"
    );
    reserved.cpu.reserved = Some(Amount::ZERO);
    assert!(refusal(&machine, &reserved).ends_with("to be greater than zero"));
    // Fractions are rounded up.
    reserved.cpu.reserved = Some(Amount::from_milli(1500));
    reserved.cpu.reserved_cpus = "0".parse().unwrap();
    assert_eq!(
        refusal(&machine, &reserved),
        "new static policy error: [cpumanager] unable to reserve the required amount of CPUs (size of 0 did not equal 2)"
    );
    reserved.cpu.reserved_cpus = "0,99".parse().unwrap();
    assert!(refusal(&machine, &reserved).ends_with("unknown CPU ID: 99"));

    let empty = Machine::default();
    assert_eq!(refusal(&empty, &plain()), "could not detect number of cpus");
    assert_eq!(
        CpuPolicy::parse("all").unwrap_err().to_string(),
        "unknown policy: \"all\""
    );
}

/// `TestCPUManagerGetAllocatableCPUs`: reserved CPUs are whole cores, the lowest ones first.
#[test]
fn reserved_cpus_are_chosen_or_given() {
    let machine = machine(2, 4, 2, 1);
    let mut config = plain();
    let allocatable = |config: &ResourcesConfig| {
        let allocator = Allocator::new(&machine, config, ResourcesState::default()).unwrap();
        allocator.allocatable_cpus().to_string()
    };
    config.cpu.reserved = Some(Amount::from_units(2));
    assert_eq!(allocatable(&config), "1-7,9-15");
    config.cpu.reserved_cpus = "3,4".parse().unwrap();
    assert_eq!(allocatable(&config), "0-2,5-15");
    config.cpu.policy = CpuPolicy::None;
    assert_eq!(allocatable(&config), "");
}

fn reservation(numa_node: usize, limits: &[(&str, &str)]) -> MemoryReservation {
    MemoryReservation {
        numa_node,
        limits: quantities(limits),
    }
}

fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    let list = list.iter();
    list.map(|(name, text)| ((*name).to_owned(), Quantity((*text).to_owned())))
        .collect()
}

/// `TestValidateReservedMemory`, `TestGetSystemReservedMemory`, `TestStaticPolicyNew`
#[test]
fn reserved_memory_must_add_up() {
    let machine = machine(2, 4, 1, 1);
    for (of_node, reserved, expected) in [
        (
            &[("memory", "2Gi")][..],
            vec![reservation(0, &[("memory", "1Gi")])],
            "the total amount \"1Gi\" of type \"memory\" is not equal to the value \"2Gi\" determined by Node Allocatable \
             feature",
        ),
        (
            &[("memory", "1Gi")],
            vec![
                reservation(0, &[("memory", "512Mi"), ("hugepages-2Mi", "4Mi")]),
                reservation(1, &[("memory", "512Mi")]),
            ],
            "the total amount \"4Mi\" of type \"hugepages-2Mi\" is not equal to the value \"0\" determined by Node \
             Allocatable feature",
        ),
        (
            &[("memory", "1Gi")],
            vec![reservation(7, &[("memory", "1Gi")])],
            "the reserved memory configuration references a NUMA node 7 that does not exist on this machine",
        ),
        (
            &[("cpu", "1")],
            vec![],
            "[memorymanager] you should specify the system reserved memory",
        ),
    ] {
        let mut config = plain();
        config.memory.node_reserved = quantities(of_node);
        config.memory.reserved = reserved;
        assert_eq!(refusal(&machine, &config), expected);
    }
    let mut split = plain();
    split.memory.node_reserved = quantities(&[("memory", "1Gi"), ("hugepages-2Mi", "4Mi")]);
    split.memory.reserved = vec![
        reservation(0, &[("memory", "512Mi"), ("hugepages-2Mi", "4Mi")]),
        reservation(1, &[("memory", "512Mi")]),
    ];
    let allocator = Allocator::new(&machine, &split, ResourcesState::default()).unwrap();
    let nodes = &allocator.memory_state().nodes;
    assert_eq!(nodes[&0].memory["hugepages-2Mi"].system_reserved, 4 << 20);
    // What is reserved, and what is in huge pages, cannot be allocated.
    assert_eq!(nodes[&1].memory["memory"].allocatable, (8 << 30) - (512 << 20));
    for (name, expected) in [
        ("Some", "unknown policy: \"Some\""),
        (
            "BestEffort",
            "policy \"BestEffort\" is not available for platform \"linux\"",
        ),
    ] {
        assert_eq!(MemoryPolicy::parse(name).unwrap_err().to_string(), expected);
    }
}

/// `TestNewTopologyManagerOptions`, `TestNewManager`
#[test]
fn options_and_machines_of_the_topology_manager() {
    for (list, expected) in [
        (
            ("unknown", "1"),
            "unknown Topology Manager Policy option: \"unknown\"",
        ),
        (
            ("prefer-closest-numa-nodes", "x"),
            "bad value for option \"prefer-closest-numa-nodes\": strconv.ParseBool: parsing \"x\": invalid syntax",
        ),
        (
            ("max-allowable-numa-nodes", "x"),
            "unable to convert policy option to integer \"max-allowable-numa-nodes\": strconv.Atoi: parsing \"x\": invalid \
             syntax",
        ),
        (
            ("max-allowable-numa-nodes", "7"),
            "the minimum value of \"max-allowable-numa-nodes\" should not be less than 8",
        ),
    ] {
        let error = TopologyOptions::parse(&options(&[list])).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    let nine = machine(9, 1, 1, 1);
    let mut config = config(TopologyPolicy::BestEffort, TopologyScope::Pod);
    assert_eq!(
        refusal(&nine, &config),
        "unsupported on machines with more than 8 NUMA Nodes"
    );
    config.topology_options = TopologyOptions::parse(&options(&[("max-allowable-numa-nodes", "9")])).unwrap();
    Allocator::new(&nine, &config, ResourcesState::default()).unwrap();

    let mut unknown_distances = machine(2, 4, 1, 1);
    unknown_distances.nodes[1].distances = None;
    config.topology_options =
        TopologyOptions::parse(&options(&[("prefer-closest-numa-nodes", "true")])).unwrap();
    assert_eq!(
        refusal(&unknown_distances, &config),
        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    );
    assert_eq!(
        TopologyPolicy::parse("best").unwrap_err().to_string(),
        "unknown policy: \"best\""
    );
    assert_eq!(
        TopologyScope::parse("node").unwrap_err().to_string(),
        "unknown scope: \"node\""
    );
}

#[test]
fn sets_of_cpus_are_parsed_and_written_as_lists() {
    for (text, written) in [
        ("", ""),
        ("0", "0"),
        ("5,0-3", "0-3,5"),
        ("1-1,2", "1-2"),
        ("63-65,128", "63-65,128"),
    ] {
        let set: CpuSet = text.parse().unwrap();
        assert_eq!(set.to_string(), written);
    }
    for (text, expected) in [
        ("a", "strconv.Atoi: parsing \"a\": invalid syntax"),
        ("1,", "strconv.Atoi: parsing \"\": invalid syntax"),
        ("3-1", "invalid range \"3-1\" (3 > 1)"),
        ("0-99999999", "CPU id 99999999 is too high"),
    ] {
        assert_eq!(text.parse::<CpuSet>().unwrap_err().to_string(), expected);
    }
    let (a, b): (CpuSet, CpuSet) = ("0-3,70".parse().unwrap(), "2-5".parse().unwrap());
    assert_eq!(a.union(&b).to_string(), "0-5,70");
    assert_eq!(a.intersection(&b), "2-3".parse().unwrap());
    assert_eq!(a.difference(&b).to_string(), "0-1,70");
    assert!(a.contains(70) && !a.is_subset(&b) && b.difference(&b).is_empty());
}
