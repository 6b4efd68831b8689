//! Cgroups whose processes do not run: what only they can change is not read again.

use std::sync::Arc;
use std::time::Duration;

use kubelet_stats::source::CgroupsV2;
use kubelet_stats::{Collector, Reading};

use crate::tree::Tree;

const CONTAINER: &str = "/kubepods/poda/1";

/// What of a reading only the cgroup's own processes change: CPU time in user mode, files, sockets, kills, the maximum
/// of memory.
fn own(reading: &Reading) -> [u64; 5] {
    let usage = &reading.usage;
    [
        usage.cpu.user,
        usage.processes.file_descriptors,
        usage.processes.sockets,
        usage.oom_events,
        usage.memory.max_usage,
    ]
}

async fn read(collector: &Collector) -> Arc<Reading> {
    let snapshot = collector.snapshot(Duration::ZERO).await.unwrap();
    assert!(!snapshot.incomplete);
    snapshot.cgroup(CONTAINER).unwrap().clone()
}

/// Process 42 in the container, with one open file.
fn add_process(tree: &Tree) {
    tree.link("proc/42/fd/0", "/dev/null");
    tree.write(
        "proc/42/limits",
        "Max open files            1024                 4096                 files     \n",
    );
}

/// All of this happens while no CPU time passes, which the kernel does not do.
fn change(tree: &Tree, socket: &str) {
    tree.link(&format!("proc/42/fd/{socket}"), "socket:[7]");
}

#[tokio::test]
async fn of_version_1() {
    let tree = Tree::v1();
    tree.add_v1(CONTAINER, 300, 3_000);
    add_process(&tree);
    let write = |controller: &str, file: &str, text: &str| {
        tree.write(&format!("sys/fs/cgroup/{controller}{CONTAINER}/{file}"), text);
    };
    write("cpu", "cgroup.procs", "42\n");
    let collector = tree.collector(&["/kubepods"]);
    assert_eq!(own(&*read(&collector).await), [10_000_000, 1, 0, 0, 0]);

    change(&tree, "1");
    write("cpuacct", "cpuacct.stat", "user 7\nsystem 2\n");
    write("memory", "memory.oom_control", "oom_kill 2\n");
    write("memory", "memory.max_usage_in_bytes", "9000\n");
    assert_eq!(own(&*read(&collector).await), [10_000_000, 1, 0, 0, 0]);
    // Memory and limits change without the processes.
    write("memory", "memory.usage_in_bytes", "5000\n");
    write("cpu", "cpu.shares", "2048\n");
    let reading = read(&collector).await;
    assert_eq!(own(&reading), [10_000_000, 1, 0, 2, 9_000]);
    assert_eq!(
        (reading.usage.memory.usage, reading.spec.cpu.unwrap().shares),
        (5_000, 2_048)
    );
    // It ran.
    write("cpuacct", "cpuacct.usage", "301\n");
    assert_eq!(own(&*read(&collector).await), [70_000_000, 2, 1, 2, 9_000]);
    // A process was moved here, and has not run yet.
    change(&tree, "2");
    write("pids", "pids.current", "4\n");
    assert_eq!(own(&*read(&collector).await), [70_000_000, 3, 2, 2, 9_000]);
    // Another container has the name now. It comes to the same CPU time.
    tree.remove("sys/fs/cgroup/cpu/kubepods/poda/1");
    tree.write("sys/fs/cgroup/cpu/kubepods/poda/other", "");
    tree.add_v1(CONTAINER, 301, 3_000);
    write("cpu", "cgroup.procs", "42\n");
    write("pids", "pids.current", "4\n");
    write("cpuacct", "cpuacct.stat", "user 9\nsystem 2\n");
    assert_eq!(read(&collector).await.usage.cpu.user, 90_000_000);
}

#[tokio::test]
async fn processes_that_could_not_be_counted_or_are_others_are_counted_again() {
    let tree = Tree::v1();
    tree.add_v1(CONTAINER, 300, 3_000);
    add_process(&tree);
    let processes = |text: &str| {
        tree.write(&format!("sys/fs/cgroup/cpu{CONTAINER}/cgroup.procs"), text);
    };
    let files = async |collector: &Collector| {
        let reading = read(collector).await;
        let usage = &reading.usage.processes;
        (usage.processes, usage.file_descriptors)
    };
    // Process 43 cannot be read.
    processes("42\n43\n");
    let collector = tree.collector(&["/kubepods"]);
    assert_eq!(files(&collector).await, (2, 1));
    tree.link("proc/43/fd/0", "/dev/null");
    assert_eq!(files(&collector).await, (2, 2));
    change(&tree, "1");
    assert_eq!(files(&collector).await, (2, 2), "at rest");
    // One was moved to another cgroup below, so there are as many threads.
    processes("42\n");
    assert_eq!(files(&collector).await, (1, 2));
}

#[tokio::test]
async fn without_the_controller_of_threads_all_is_read() {
    let tree = Tree::v1();
    tree.add_v1(CONTAINER, 300, 3_000);
    tree.remove("sys/fs/cgroup/pids");
    let collector = tree.collector(&["/kubepods"]);
    assert_eq!(read(&collector).await.usage.cpu.user, 10_000_000);
    tree.write(
        "sys/fs/cgroup/cpuacct/kubepods/poda/1/cpuacct.stat",
        "user 7\nsystem 2\n",
    );
    assert_eq!(read(&collector).await.usage.cpu.user, 70_000_000);
}

#[tokio::test]
async fn of_version_2() {
    let tree = Tree::new();
    tree.add_machine();
    add_process(&tree);
    let write = |name: &str, file: &str, text: &str| {
        tree.write(&format!("sys/fs/cgroup{name}/{file}"), text);
    };
    for name in ["", "/kubepods", "/kubepods/poda", CONTAINER] {
        write(name, "cgroup.procs", "");
        write(name, "cgroup.events", "populated 1\nfrozen 0\n");
        write(name, "cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n");
        write(
            name,
            "memory.stat",
            "anon 7\nfile 3\nfile_mapped 1\ninactive_file 1\nactive_file 2\npgfault 9\npgmajfault 1\n",
        );
        write(name, "memory.current", "20\n");
        write(name, "memory.max", "max\n");
        write(name, "pids.current", "1\n");
        write(name, "pids.max", "max\n");
        write(name, "io.stat", "");
    }
    write(CONTAINER, "cgroup.procs", "42\n");
    let mut config = tree.config(&["/kubepods"]);
    let cgroups = CgroupsV2::new(tree.path("sys/fs/cgroup"), &tree.path("proc"), None);
    config.cgroups = Arc::new(cgroups);
    let collector = Collector::new(config);
    assert_eq!(own(&*read(&collector).await), [3_000, 1, 0, 0, 0]);
    change(&tree, "1");
    write(CONTAINER, "memory.events.local", "oom_kill 2\n");
    write(CONTAINER, "memory.peak", "30\n");
    assert_eq!(own(&*read(&collector).await), [3_000, 1, 0, 0, 0]);
    write(CONTAINER, "memory.current", "25\n");
    assert_eq!(own(&*read(&collector).await), [3_000, 1, 0, 2, 30]);
    write(
        CONTAINER,
        "cpu.stat",
        "usage_usec 6\nuser_usec 4\nsystem_usec 2\n",
    );
    assert_eq!(own(&*read(&collector).await), [4_000, 2, 1, 2, 30]);
}
