//! The machine that runs the tests.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Clock, Disk};
use kubelet_stats::source::{
    Cgroups, CgroupsV2, HostFileSystems, HostMachine, HostStatFs, MachineSource as _, ProcFs, host_cgroups,
};
use kubelet_stats::{Collector, CollectorConfig};

#[tokio::test]
async fn its_cgroups() {
    let clock = Clock::system();
    let Ok(cgroups) = host_cgroups(clock) else {
        println!("SKIPPED: no cgroups are mounted");
        return;
    };
    let config = CollectorConfig {
        cgroup_roots: Vec::new(),
        cgroups,
        processes: Arc::new(ProcFs::new("/proc")),
        machine: Arc::new(HostMachine::new("/", clock)),
        file_systems: Arc::new(HostFileSystems::new(
            "/proc",
            Vec::new(),
            Arc::new(HostStatFs),
            clock,
        )),
        runtime: None,
        pods: None,
        clock,
        disk: Disk::default(),
    };
    let collector = Collector::new(config);
    let first = collector.snapshot(Duration::ZERO).await.unwrap();
    let second = collector.snapshot(Duration::ZERO).await.unwrap();
    let (before, after) = (first.cgroup("/").unwrap(), second.cgroup("/").unwrap());
    assert!(before.usage.cpu.total > 0 && before.usage.cpu.total <= after.usage.cpu.total);
    assert!(after.usage.memory.usage > 0 && after.usage.memory.working_set <= after.usage.memory.usage);
    assert!(after.spec.creation_time.is_some());
    assert!(first.machine.cores >= 1 && first.machine.memory_capacity > after.usage.memory.rss);
}

#[test]
fn its_machine() {
    let source = HostMachine::new("/", Clock::system());
    let machine = source.machine().unwrap();
    let threads: usize = machine
        .topology
        .iter()
        .flat_map(|node| &node.cores)
        .map(|core| core.threads.len())
        .sum();
    assert!(machine.topology.is_empty() || threads as u64 == machine.cores);
    assert!(machine.physical_cores <= machine.cores && !machine.boot_id.is_empty());
    assert!(!source.version().kernel.is_empty());
}

/// A host with version 1 may have a second hierarchy of version 2, without controllers.
#[test]
fn its_cgroups_of_version_2() {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let Some(root) = roots
        .into_iter()
        .find(|root| Path::new(root).join("cgroup.controllers").exists())
    else {
        println!("SKIPPED: no cgroup2 is mounted");
        return;
    };
    let cgroups = CgroupsV2::new(root, Path::new("/proc"), None);
    let spec = cgroups.spec("/").unwrap();
    let usage = cgroups.usage("/", &spec).unwrap();
    assert!(usage.cpu.total > 0, "{usage:?}");
    assert!(!cgroups.processes("/").unwrap().is_empty());
    if cgroups.has_psi() {
        assert!(usage.cpu.psi.some.total > 0, "{usage:?}");
    }
}
