//! The machine, read from a folder like `/sys`.

use std::fs;
use std::path::Path;

use kubelet_resources::cpu::CpuTopology;
use kubelet_resources::{Core, HugePages, Machine};

fn write(sys: &Path, file: &str, text: &str) {
    let path = sys.join("devices/system").join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn cpu(sys: &Path, cpu: usize, core: usize, socket: usize, cache: (usize, &str)) {
    let file = |name: &str, text: &str| write(sys, &format!("cpu/cpu{cpu}/{name}"), &format!("{text}\n"));
    file("topology/core_id", &core.to_string());
    file("topology/physical_package_id", &socket.to_string());
    for (index, level, id, shared) in [(0, 1, cpu, "1"), (3, 3, cache.0, cache.1)] {
        file(&format!("cache/index{index}/level"), &level.to_string());
        file(&format!("cache/index{index}/id"), &id.to_string());
        file(&format!("cache/index{index}/shared_cpu_map"), shared);
    }
}

/// Two nodes with two cores of two CPUs each. CPU 7 is offline. The cores of node 0 have caches of their own.
fn two_nodes(sys: &Path) {
    write(sys, "cpu/online", "0-6\n");
    for (number, node) in [(0, 0), (1, 0), (4, 0), (5, 0), (2, 1), (3, 1), (6, 1), (7, 1)] {
        let core = number % 2;
        let cache = match node {
            0 => (core, if core == 0 { "11" } else { "22" }),
            _ => (2, "00000000,000000cc"),
        };
        cpu(sys, number, core, node, cache);
        write(sys, &format!("node/node{node}/cpu{number}/online"), "1");
    }
    for (node, distance) in [(0, "10 21\n"), (1, "21 10\n")] {
        let file = |name: &str, text: &str| write(sys, &format!("node/node{node}/{name}"), text);
        file(
            "meminfo",
            &format!("Node {node} MemTotal:    1024 kB\nNode {node} MemFree:  1 kB\n"),
        );
        file("distance", distance);
        file("hugepages/hugepages-1048576kB/nr_hugepages", "1\n");
        file("hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    }
    write(sys, "node/possible", "0-1\n");
}

#[test]
fn nodes_have_cores_memory_and_distances() {
    let sys = tempfile::tempdir().unwrap();
    two_nodes(sys.path());
    let machine = Machine::read(sys.path()).unwrap();
    let core = |id, socket, threads: &[usize], uncore_cache| Core {
        id,
        threads: threads.to_vec(),
        uncore_cache,
        socket,
    };
    let [first, second] = &machine.nodes[..] else {
        panic!("{machine:?}")
    };
    assert_eq!(
        first.cores,
        [core(0, 0, &[0, 4], Some(0)), core(1, 0, &[1, 5], Some(1))]
    );
    // All CPUs of the node share the cache: it is no cache of some cores.
    assert_eq!(second.cores[0], core(0, 1, &[2, 6], None));
    assert_eq!(second.cores[1].threads, [3]);
    assert_eq!(first.memory, 1 << 20);
    assert_eq!(second.distances.as_deref(), Some(&[21, 10][..]));
    let pages = |size_kib, count| HugePages { size_kib, count };
    assert_eq!(first.huge_pages, [pages(2048, 512), pages(1 << 20, 1)]);
    assert_eq!((machine.cpu_count(), machine.socket_count()), (7, 2));
    assert_eq!(CpuTopology::new(&machine).unwrap().cpus().to_string(), "0-6");
}

#[test]
fn without_numa_each_socket_is_a_node() {
    let sys = tempfile::tempdir().unwrap();
    for (number, socket) in [(0, 0), (1, 0), (2, 1)] {
        cpu(sys.path(), number, number, socket, (socket, "3"));
    }
    let machine = Machine::read(sys.path()).unwrap();
    let nodes: Vec<_> = machine
        .nodes
        .iter()
        .map(|node| (node.id, node.cores.len(), node.memory))
        .collect();
    assert_eq!(nodes, [(0, 2, 0), (1, 1, 0)]);
    assert_eq!(machine.nodes[0].distances, None);
}

#[test]
fn sockets_that_the_kernel_does_not_know_are_one() {
    let sys = tempfile::tempdir().unwrap();
    for number in 0..2 {
        cpu(sys.path(), number, number, 0, (0, "3"));
        let socket = format!("cpu/cpu{number}/topology/physical_package_id");
        write(sys.path(), &socket, "-1\n");
    }
    let machine = Machine::read(sys.path()).unwrap();
    assert_eq!((machine.nodes.len(), machine.socket_count()), (1, 1));
    assert_eq!((machine.nodes[0].id, machine.nodes[0].cores.len()), (0, 2));
}

#[test]
fn a_file_of_another_form_is_an_error() {
    let sys = tempfile::tempdir().unwrap();
    two_nodes(sys.path());
    write(sys.path(), "node/node1/meminfo", "nothing\n");
    let error = Machine::read(sys.path()).unwrap_err().to_string();
    assert!(error.ends_with("node1/meminfo: no MemTotal in kB"), "{error}");
}

/// On whatever machine this runs.
#[test]
fn this_machine_can_be_read() {
    let machine = Machine::read(Path::new("/sys")).unwrap();
    if machine.cpu_count() > 0 {
        assert!(CpuTopology::new(&machine).unwrap().cpus_per_core() >= 1);
    }
}
