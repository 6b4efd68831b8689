//! Cgroups of version 2, in the formats of the kernel's `cgroup-v2.rst`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::stats::{PsiData, PsiStats};
use kubelet_stats::Collector;
use kubelet_stats::reading::MemoryUsage;
use kubelet_stats::source::{CgroupFiles, Cgroups, CgroupsV2, Detail, Listed};

use crate::tree::Tree;

const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a_1b.slice";

fn host() -> Tree {
    let tree = Tree::new();
    tree.add_machine();
    let root = "sys/fs/cgroup";
    let write = |name: &str, file: &str, text: &str| tree.write(&format!("{root}{name}/{file}"), text);
    write(
        "",
        "cgroup.controllers",
        "cpuset cpu io memory hugetlb pids rdma misc\n",
    );
    write("", "cgroup.procs", "1\n2\n");
    write(
        "",
        "cpu.stat",
        "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnice_usec 0\n",
    );
    write(
        "",
        "memory.stat",
        "anon 700\nfile 300\nkernel 50\nfile_mapped 30\ninactive_file 100\nactive_file 200\npgfault 9\npgmajfault 1\n",
    );
    write("", "io.stat", "");
    write(
        "",
        "cpu.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    );
    let container = format!("{POD}/cri-containerd-{}.scope", "9".repeat(64));
    for name in [
        "/kubepods.slice",
        "/kubepods.slice/kubepods-burstable.slice",
        POD,
        &container,
    ] {
        write(name, "cgroup.procs", "");
        write(name, "cgroup.events", "populated 1\nfrozen 0\n");
        write(
            name,
            "cpu.stat",
            "usage_usec 501146\nuser_usec 431041\nsystem_usec 70105\nnice_usec 0\nnr_periods 13\nnr_throttled 5\n\
             throttled_usec 58860\nnr_bursts 2\nburst_usec 30\n",
        );
        write(name, "cpu.weight", "20\n");
        write(name, "cpu.max", "50000 100000\n");
        write(
            name,
            "cpu.pressure",
            "some avg10=0.02 avg60=0.21 avg300=0.08 total=300059\nfull avg10=0.01 avg60=0.20 avg300=0.07 total=294442\n",
        );
        write(
            name,
            "memory.pressure",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=6\n",
        );
        write(
            name,
            "io.pressure",
            "some avg10=0.00 avg60=0.00 avg300=1.50 total=169\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=169\n",
        );
        write(name, "memory.current", "20959232\n");
        write(name, "memory.peak", "21381120\n");
        write(name, "memory.max", "67108864\n");
        write(name, "memory.min", "1024\n");
        write(name, "memory.swap.current", "4096\n");
        write(name, "memory.swap.max", "max\n");
        write(
            name,
            "memory.events.local",
            "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 0\n",
        );
        write(
            name,
            "memory.stat",
            "anon 57344\nfile 19922944\nkernel 770048\nfile_mapped 8192\ninactive_anon 57344\nactive_anon 0\n\
             inactive_file 19910656\nactive_file 12288\npgfault 885\npgmajfault 4\n",
        );
        write(
            name,
            "io.stat",
            "254:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n254:0 rbytes=90112 wbytes=299008 rios=8950 wios=1252 dbytes=0 dios=0\n(unknown) rbytes=1\n",
        );
        write(name, "pids.current", "8\n");
        write(name, "pids.max", "max\n");
        write(name, "hugetlb.2MB.current", "2097152\n");
        write(name, "hugetlb.2MB.rsvd.current", "4194304\n");
        write(name, "hugetlb.2MB.events", "max 1\n");
    }
    tree.write(&format!("{root}{container}/cgroup.procs"), "7\n8\n");
    tree.write(&format!("{root}/system.slice/x.mount/cgroup.procs"), "");
    tree.write("sys/block/vda/dev", "254:0\n");
    tree.write("sys/block/vda/size", "100\n");
    for fd in ["0", "1"] {
        tree.link(&format!("proc/7/fd/{fd}"), "/dev/null");
    }
    tree.link("proc/7/fd/3", "socket:[12]");
    tree
}

fn cgroups(tree: &Tree) -> CgroupsV2 {
    CgroupsV2::new(tree.path("sys/fs/cgroup"), &tree.path("proc"), None)
}

fn collector(tree: &Tree) -> Collector {
    let mut config = tree.config(&["/kubepods.slice", "/system.slice"]);
    config.cgroups = Arc::new(cgroups(tree));
    Collector::new(config)
}

#[tokio::test]
async fn a_container() {
    let tree = host();
    let snapshot = collector(&tree).snapshot(Duration::ZERO).await.unwrap();
    assert!(!snapshot.incomplete);
    let names: Vec<&str> = snapshot.cgroups.keys().map(AsRef::as_ref).collect();
    let container = format!("{POD}/cri-containerd-{}.scope", "9".repeat(64));
    // `/system.slice` has no files here: it is as good as gone.
    let parents = [
        "/",
        "/kubepods.slice",
        "/kubepods.slice/kubepods-burstable.slice",
        POD,
    ];
    assert_eq!((&names[..4], names[4]), (&parents[..], &*container));

    let reading = snapshot.cgroup(&container).unwrap();
    let cpu = &reading.usage.cpu;
    assert_eq!(
        (cpu.total, cpu.user, cpu.system),
        (501_146_000, 431_041_000, 70_105_000)
    );
    assert_eq!(
        (cpu.cfs.periods, cpu.cfs.throttled_periods, cpu.cfs.throttled_time),
        (13, 5, 58_860_000)
    );
    assert_eq!((cpu.cfs.burst_periods, cpu.cfs.burst_time), (2, 30_000));
    let psi = PsiStats {
        some: PsiData {
            total: 300_059,
            avg10: 0.02,
            avg60: 0.21,
            avg300: 0.08,
        },
        full: PsiData {
            total: 294_442,
            avg10: 0.01,
            avg60: 0.20,
            avg300: 0.07,
        },
    };
    assert_eq!(cpu.psi, psi);
    let memory = &reading.usage.memory;
    assert_eq!((memory.usage, memory.max_usage), (20_959_232, 21_381_120));
    assert_eq!(
        (memory.rss, memory.cache, memory.mapped_file),
        (57_344, 19_922_944, 8_192)
    );
    assert_eq!(memory.working_set, 20_959_232 - 19_910_656);
    assert_eq!((memory.swap, memory.pgfault, memory.pgmajfault), (4096, 885, 4));
    assert_eq!((memory.psi.some.total, memory.psi.full.total), (7, 6));
    // As in cAdvisor.
    assert_eq!((memory.failcnt, memory.kernel), (0, 0));
    assert_eq!(reading.usage.oom_events, 2);
    let io = &reading.usage.disk_io;
    assert_eq!(io.psi.some.avg300, 1.5);
    let bytes: Vec<_> = io
        .io_service_bytes
        .iter()
        .map(|io| (&*io.device, io.operation("Read"), io.operation("Write")))
        .collect();
    assert_eq!(
        bytes,
        [("/dev/vda", Some(90_112), Some(299_008)), ("", Some(1), Some(2))]
    );
    assert_eq!(io.io_serviced[0].operation("Read"), Some(8950));
    let processes = &reading.usage.processes;
    assert_eq!(
        (processes.processes, processes.threads, processes.threads_max),
        (2, 8, 0)
    );
    assert_eq!(
        (processes.file_descriptors, processes.sockets),
        (3, 1),
        "process 8 has ended"
    );

    let spec = &reading.spec;
    let cpu = spec.cpu.unwrap();
    // 2 + 19 · 262142 / 9999
    assert_eq!((cpu.shares, cpu.quota, cpu.period), (500, 50_000, 100_000));
    let memory = spec.memory.unwrap();
    assert_eq!(
        (memory.limit, memory.reservation, memory.swap_limit),
        (67_108_864, 1024, u64::MAX)
    );
    assert_eq!(spec.threads_max, Some(u64::MAX));
    assert!(spec.creation_time.is_some() && spec.has_disk_io);
}

#[tokio::test]
async fn the_root() {
    let tree = host();
    let snapshot = collector(&tree).snapshot(Duration::ZERO).await.unwrap();
    let root = snapshot.cgroup("/").unwrap();
    let memory = &root.usage.memory;
    assert_eq!((memory.usage, memory.working_set), (1000, 900));
    assert_eq!(memory.swap, 60 * 1024, "from the machine");
    assert_eq!(root.usage.cpu.total, 5_000_000);
    assert_eq!(
        root.usage.processes.threads, 2,
        "the processes: the root has no controller for them"
    );
    let spec = root.spec.memory.unwrap();
    assert_eq!((spec.limit, spec.swap_limit), (1000 * 1024, 100 * 1024));
    assert!(cgroups(&tree).has_psi());
}

#[test]
fn huge_pages_if_asked_for() {
    let tree = host();
    let cgroups = cgroups(&tree).with_hugetlb();
    let spec = cgroups.spec(POD).unwrap();
    let usage = cgroups.usage(POD, &spec).unwrap();
    let [pages] = &usage.hugetlb[..] else {
        panic!("{:?}", usage.hugetlb)
    };
    assert_eq!(
        (&*pages.page_size, pages.usage, pages.failcnt),
        ("2MB", 4_194_304, 1)
    );
}

#[test]
fn what_is_missing_or_no_number() {
    let tree = host();
    let pod = |file: &str| format!("sys/fs/cgroup{POD}/{file}");
    let cgroups = cgroups(&tree);
    let spec = cgroups.spec(POD).unwrap();
    // Stalls are turned off.
    tree.remove(&pod("cpu.pressure"));
    assert_eq!(cgroups.usage(POD, &spec).unwrap().cpu.psi, PsiStats::default());
    // Without swap, and before 5.19.
    tree.remove(&pod("memory.swap.current"));
    tree.remove(&pod("memory.peak"));
    let memory = cgroups.usage(POD, &spec).unwrap().memory;
    assert_eq!((memory.swap, memory.max_usage), (0, 0));
    for (file, text) in [
        ("cpu.stat", "usage_usec 5\nuser_usec"),
        ("cpu.stat", "usage_usec x\n"),
        ("cpu.stat", "user_usec 5\n"),
        ("memory.stat", "anon 5\n"),
        ("memory.stat", "anon 5\ninactive_file 1"),
        ("memory.current", ""),
        ("memory.current", "123"),
        ("pids.current", "many\n"),
        ("io.stat", "8:0 rbytes=x\n"),
        ("io.pressure", "some avg10=x\n"),
    ] {
        let before = std::fs::read_to_string(tree.path(&pod(file))).unwrap();
        tree.write(&pod(file), text);
        let error = cgroups.usage(POD, &spec).unwrap_err();
        assert!(
            !error.is_gone() && error.to_string().contains(file),
            "{file} {text:?}: {error}"
        );
        tree.write(&pod(file), &before);
    }
    tree.write(&pod("cpu.max"), "max\n");
    assert!(cgroups.spec(POD).unwrap_err().to_string().contains("cpu.max"));
    tree.remove(&pod("memory.current"));
    assert!(cgroups.usage(POD, &spec).unwrap_err().is_gone());
    assert!(cgroups.spec("/none").unwrap_err().is_gone());
    assert_eq!(cgroups.list("/none").unwrap(), Listed::default());
    assert!(!CgroupsV2::new(Path::new("/none"), Path::new("/none"), None).has_psi());
}

#[test]
fn a_group_that_is_killed_together_is_one_event() {
    let tree = host();
    let cgroups = cgroups(&tree);
    let spec = cgroups.spec(POD).unwrap();
    let events = || cgroups.usage(POD, &spec).unwrap().oom_events;
    let write = |file: &str, text: &str| tree.write(&format!("sys/fs/cgroup{POD}/{file}"), text);
    write("memory.events.local", "oom_kill 7\noom_group_kill 2\n");
    assert_eq!(events(), 7);
    write("memory.oom.group", "1\n");
    assert_eq!(events(), 2);
    write("memory.oom.group", "0\n");
    assert_eq!(events(), 7);
    // A kernel before 5.17.
    write("memory.oom.group", "1\n");
    write("memory.events.local", "oom_kill 7\n");
    assert_eq!(events(), 7);
}

#[test]
fn a_file_of_the_root_that_cannot_be_read_hides_no_other() {
    let tree = host();
    let cgroups = cgroups(&tree);
    let before = cgroups.usage("/", &cgroups.spec("/").unwrap()).unwrap();
    tree.write("sys/fs/cgroup/io.stat", "8:0 rbytes=x\n");
    tree.write("sys/fs/cgroup/io.pressure", "some avg10=x\n");
    let after = cgroups.usage("/", &cgroups.spec("/").unwrap()).unwrap();
    assert!(after.disk_io.io_service_bytes.is_empty());
    assert_eq!((after.cpu, after.memory), (before.cpu, before.memory));
    tree.write("sys/fs/cgroup/cpu.stat", "usage_usec x\n");
    assert!(cgroups.usage("/", &cgroups.spec("/").unwrap()).is_err());
}

#[test]
fn a_reading_for_the_summary_has_all_that_it_shows() {
    let tree = host();
    let cgroups = CgroupsV2::new(tree.path("sys/fs/cgroup"), &tree.path("proc"), None);
    for name in ["/", POD] {
        let all = cgroups.read(name, Detail::All).unwrap();
        assert_eq!(all.spec, cgroups.spec(name).unwrap());
        assert_eq!(all.usage, cgroups.usage(name, &all.spec).unwrap());
        assert_eq!(all.processes, cgroups.processes(name).unwrap());
        let brief = cgroups.read(name, Detail::Summary).unwrap();
        assert_eq!(brief.processes, all.processes);
        assert_eq!(brief.spec.creation_time, all.spec.creation_time);
        assert_eq!(brief.usage.cpu, all.usage.cpu);
        assert_eq!(cgroups.cpu_time(name).unwrap(), Some(all.usage.cpu.total));
        assert_eq!(brief.usage.disk_io.psi, all.usage.disk_io.psi);
        let shown = |files: &CgroupFiles| {
            let (memory, spec) = (files.usage.memory.clone(), files.spec.memory);
            let limits = spec.map(|spec| (spec.limit, spec.swap_limit));
            let max_usage = 0;
            (MemoryUsage { max_usage, ..memory }, limits)
        };
        assert_eq!(shown(&brief), shown(&all));
    }
}
