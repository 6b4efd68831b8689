//! Containers that end, files that are cut off, mounts that hang: no wrong number, and no gap for others.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_core::stats::{RuntimeContainer, RuntimeList, RuntimeSandbox};
use kubelet_stats::reading::Spec;
use kubelet_stats::source::{
    CgroupUsage, Cgroups, CgroupsV1, Detail, FileSystems as _, FileUsage, HostFileSystems, Listed, StatFs,
    StatFsResult,
};
use kubelet_stats::{Collector, Error, Snapshot};
use parking_lot::Mutex;

use crate::tree::{FixedRuntime, Tree};

const POD: &str = "/kubepods/poda";

/// A node with the containers `1` and `2` of a pod.
fn node() -> Tree {
    let tree = Tree::v1();
    tree.add_v1("/kubepods", 500, 5_000);
    tree.add_v1(POD, 500, 5_000);
    tree.add_v1(&format!("{POD}/1"), 300, 3_000);
    tree.add_v1(&format!("{POD}/2"), 200, 2_000);
    tree
}

fn remove_cgroup(tree: &Tree, name: &str) {
    for controller in ["cpu", "cpuacct", "memory", "pids"] {
        tree.remove(&format!("sys/fs/cgroup/{controller}{name}"));
    }
}

async fn read(collector: &Collector) -> Arc<Snapshot> {
    collector.snapshot(Duration::ZERO).await.unwrap()
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.cgroups.keys().map(AsRef::as_ref).collect()
}

#[tokio::test]
async fn a_container_ends_and_another_one_takes_its_place() {
    let tree = node();
    let collector = tree.collector(&["/kubepods"]);
    let first = read(&collector).await;
    assert_eq!(
        names(&first),
        ["/", "/kubepods", POD, "/kubepods/poda/1", "/kubepods/poda/2"]
    );
    assert_eq!(first.cgroup("/kubepods/poda/1").unwrap().cpu_rate, None);

    remove_cgroup(&tree, "/kubepods/poda/1");
    tree.add_v1("/kubepods/poda/3", 7, 70);
    let second = read(&collector).await;
    assert!(!second.incomplete);
    assert_eq!(
        names(&second),
        ["/", "/kubepods", POD, "/kubepods/poda/2", "/kubepods/poda/3"]
    );
    let new = second.cgroup("/kubepods/poda/3").unwrap();
    assert_eq!(
        (new.usage.cpu.total, new.usage.memory.rss, new.cpu_rate),
        (7, 70, None)
    );
    // What was handed out does not change.
    assert_eq!(first.cgroup("/kubepods/poda/1").unwrap().usage.cpu.total, 300);
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_goes_back_gives_no_rate() {
    let tree = node();
    let mut config = tree.config(&["/kubepods"]);
    config.disk = kubelet_core::Disk::inline();
    // The paused clock does not advance while another thread works.
    config.file_systems = Arc::new(NoFileSystems);
    let collector = Collector::new(config);
    let rate = async |cpu: u64| {
        tree.write(
            "sys/fs/cgroup/cpuacct/kubepods/poda/1/cpuacct.usage",
            &format!("{cpu}\n"),
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        read(&collector)
            .await
            .cgroup("/kubepods/poda/1")
            .unwrap()
            .cpu_rate
    };
    assert_eq!(rate(10_000_000_000).await, None);
    assert_eq!(rate(15_000_000_000).await, Some(500_000_000));
    assert_eq!(rate(1_000).await, None, "the cgroup was created anew");
    assert_eq!(rate(2_000_001_000).await, Some(200_000_000));
}

#[tokio::test(start_paused = true)]
async fn rates_are_kept_without_a_snapshot() {
    let tree = node();
    let mut config = tree.config(&["/kubepods"]);
    config.disk = kubelet_core::Disk::inline();
    config.file_systems = Arc::new(NoFileSystems);
    let collector = Collector::new(config);
    let use_cpu = |container: &str, cpu: u64| {
        let file = format!("sys/fs/cgroup/cpuacct/kubepods/poda/{container}/cpuacct.usage");
        tree.write(&file, &format!("{cpu}\n"));
    };
    use_cpu("1", 10_000_000_000);
    collector.keep_rates(Duration::ZERO).await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    use_cpu("1", 15_000_000_000);
    collector.keep_rates(Duration::from_secs(5)).await.unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    // It was read two seconds ago.
    use_cpu("1", 1_000);
    collector.keep_rates(Duration::from_secs(5)).await.unwrap();
    use_cpu("1", 18_000_000_000);
    // A container that is gone leaves no rate to another one.
    remove_cgroup(&tree, "/kubepods/poda/2");
    collector.keep_rates(Duration::ZERO).await.unwrap();
    tree.add_v1("/kubepods/poda/2", 200, 2_000);
    tokio::time::advance(Duration::from_secs(8)).await;
    let snapshot = read(&collector).await;
    let rate = |name: &str| snapshot.cgroup(name).unwrap().cpu_rate;
    assert_eq!(rate("/kubepods/poda/1"), Some(300_000_000), "over the last 10 s");
    assert_eq!(rate("/kubepods/poda/2"), None);
}

/// Calls a hook between the reads of spec and usage.
struct Hooked {
    cgroups: CgroupsV1,
    before_usage: Box<dyn Fn(&str) + Send + Sync>,
    rounds: AtomicUsize,
}

impl Hooked {
    fn new(tree: &Tree, before_usage: impl Fn(&str) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            cgroups: CgroupsV1::below(&tree.path("sys/fs/cgroup"), None),
            before_usage: Box::new(before_usage),
            rounds: AtomicUsize::new(0),
        })
    }
}

impl Cgroups for Hooked {
    fn list(&self, root: &str) -> kubelet_stats::Result<Listed> {
        self.rounds.fetch_add(1, Ordering::SeqCst);
        self.cgroups.list(root)
    }

    fn spec(&self, name: &str) -> kubelet_stats::Result<Spec> {
        self.cgroups.spec(name)
    }

    fn usage(&self, name: &str, spec: &Spec) -> kubelet_stats::Result<CgroupUsage> {
        (self.before_usage)(name);
        self.cgroups.usage(name, spec)
    }

    fn processes(&self, name: &str) -> kubelet_stats::Result<Vec<u32>> {
        self.cgroups.processes(name)
    }

    fn has_psi(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn a_cgroup_vanishes_while_it_is_read() {
    // A runtime removes the folders of a container one after the other.
    for controllers in [
        &["memory"][..],
        &["cpuacct"],
        &["cpu"],
        &["pids"],
        &["cpu", "cpuacct", "memory", "pids"],
    ] {
        let tree = node();
        let folders: Vec<PathBuf> = controllers
            .iter()
            .map(|controller| tree.path(&format!("sys/fs/cgroup/{controller}/kubepods/poda/1")))
            .collect();
        let cgroups = Hooked::new(&tree, move |name| {
            if name == "/kubepods/poda/1" {
                for folder in &folders {
                    std::fs::remove_dir_all(folder).unwrap();
                }
            }
        });
        let mut config = tree.config(&["/kubepods"]);
        config.cgroups = cgroups;
        let snapshot = read(&Collector::new(config)).await;
        assert!(!snapshot.incomplete, "{controllers:?}");
        assert_eq!(
            names(&snapshot),
            ["/", "/kubepods", POD, "/kubepods/poda/2"],
            "{controllers:?}"
        );
    }
}

#[test]
fn throttling_is_read_if_there_is_a_quota() {
    let (tree, name) = (node(), "/kubepods/poda/1");
    let cgroups = CgroupsV1::below(&tree.path("sys/fs/cgroup"), None);
    let write = |file: &str, text: &str| tree.write(&format!("sys/fs/cgroup/cpu{name}/{file}"), text);
    write("cpu.stat", "nr_periods 5\nnr_throttled 2\nthrottled_time 7\n");
    for (quota, periods) in [("-1\n", 0), ("10000\n", 5)] {
        write("cpu.cfs_quota_us", quota);
        let read = cgroups.read(name, Detail::All).unwrap();
        assert_eq!(read.usage.cpu.cfs.periods, periods, "{quota}");
        let usage = cgroups.usage(name, &read.spec).unwrap();
        assert_eq!(usage.cpu.cfs.periods, periods, "{quota}");
    }
    // The folder is missed even if no file in it is needed.
    write("cpu.cfs_quota_us", "-1\n");
    let spec = cgroups.spec(name).unwrap();
    tree.remove(&format!("sys/fs/cgroup/cpu{name}"));
    assert!(cgroups.usage(name, &spec).unwrap_err().is_gone());
}

#[tokio::test]
async fn a_cgroup_that_is_being_removed_is_not_shown_with_less() {
    let tree = node();
    let collector = tree.collector(&["/kubepods"]);
    read(&collector).await;
    tree.remove("sys/fs/cgroup/memory/kubepods/poda/1");
    let snapshot = read(&collector).await;
    assert_eq!(names(&snapshot), ["/", "/kubepods", POD, "/kubepods/poda/2"]);
}

#[tokio::test]
async fn files_that_are_cut_off_or_no_text() {
    let file = "sys/fs/cgroup/memory/kubepods/poda/1/memory.stat";
    for text in [
        "",
        "total_rss",
        "total_rss 5\ntotal_inactive_fi",
        "total_rss 5\n",
        "\u{fffd}\0\u{1}\n",
        "total_rss -x\n",
    ] {
        let tree = node();
        let collector = tree.collector(&["/kubepods"]);
        let before = read(&collector).await;
        tree.write(file, text);
        let snapshot = read(&collector).await;
        assert!(snapshot.incomplete, "{text:?}");
        let kept = snapshot.cgroup("/kubepods/poda/1").unwrap();
        assert!(
            Arc::ptr_eq(kept, before.cgroup("/kubepods/poda/1").unwrap()),
            "with the time when it was read"
        );
        assert_eq!(
            snapshot.cgroup("/kubepods/poda/2").unwrap().usage.memory.rss,
            2_000
        );
        // Nobody has read it before.
        let snapshot = read(&tree.collector(&["/kubepods"])).await;
        assert!(
            snapshot.incomplete && snapshot.cgroup("/kubepods/poda/1").is_none(),
            "{text:?}"
        );
        assert_eq!(snapshot.cgroups.len(), 4);
    }
    // A kernel that shows a negative number means none.
    let tree = node();
    tree.write(file, "total_rss -5\ntotal_inactive_file 0\n");
    let snapshot = read(&tree.collector(&["/kubepods"])).await;
    assert_eq!(snapshot.cgroup("/kubepods/poda/1").unwrap().usage.memory.rss, 0);
}

#[tokio::test]
async fn a_reading_for_the_summary_does_not_stand_for_one_with_all_details() {
    let tree = node();
    let collector = tree.collector(&["/kubepods"]);
    let brief = collector
        .snapshot_with(Detail::Summary, Duration::ZERO)
        .await
        .unwrap();
    let container = |snapshot: &Snapshot| snapshot.cgroup("/kubepods/poda/1").cloned();
    let threads = |snapshot: &Snapshot| container(snapshot).map(|reading| reading.usage.processes.threads);
    assert_eq!((brief.detail, threads(&brief)), (Detail::Summary, Some(0)));
    // A counter that is 0 because nobody has read it must not be shown.
    let file = "sys/fs/cgroup/memory/kubepods/poda/1/memory.stat";
    let text = std::fs::read_to_string(tree.path(file)).unwrap();
    tree.write(file, "total_rss");
    let all = collector.snapshot(Duration::from_secs(15)).await.unwrap();
    assert!(all.incomplete && container(&all).is_none());
    tree.write(file, &text);
    let all = read(&collector).await;
    assert_eq!((all.detail, threads(&all)), (Detail::All, Some(3)));
    // All details are enough for a summary.
    let same = collector
        .snapshot_with(Detail::Summary, Duration::from_secs(15))
        .await
        .unwrap();
    assert!(Arc::ptr_eq(&all, &same));
}

#[tokio::test]
async fn without_the_root_cgroup_there_is_an_error() {
    let tree = node();
    tree.write("sys/fs/cgroup/cpuacct/cpuacct.usage", "x\n");
    let error = tree.collector(&[]).snapshot(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("cpuacct.usage"), "{error}");
    let error = node()
        .collector(&[])
        .cgroup("/none", Duration::ZERO)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoCgroup { .. }), "{error}");
}

#[tokio::test]
async fn callers_share_a_reading() {
    let tree = node();
    let cgroups = Hooked::new(&tree, |_| {});
    let mut config = tree.config(&["/kubepods"]);
    config.cgroups = cgroups.clone();
    let collector = Collector::new(config);
    let calls = (0..20).map(|_| collector.snapshot(Duration::ZERO));
    let snapshots = futures::future::try_join_all(calls).await.unwrap();
    assert!(cgroups.rounds.load(Ordering::SeqCst) <= 2);
    assert!(snapshots.iter().all(|snapshot| snapshot.cgroups.len() == 5));
    let rounds = cgroups.rounds.load(Ordering::SeqCst);
    collector.snapshot(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(
        cgroups.rounds.load(Ordering::SeqCst),
        rounds,
        "it is young enough"
    );
    collector.snapshot(Duration::ZERO).await.unwrap();
    assert_eq!(cgroups.rounds.load(Ordering::SeqCst), rounds + 1);
}

#[tokio::test]
async fn a_reading_for_the_summary_has_all_details_for_a_caller_that_waits() {
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let tree = node();
    let cgroups = Arc::new(Listing {
        cgroups: Hooked::new(&tree, |_| {}),
        before_list: Box::new(move || {
            let _ = begun.send(());
            let _ = released.lock().recv();
        }),
    });
    let mut config = tree.config(&["/kubepods"]);
    config.cgroups = cgroups.clone();
    let collector = Collector::new(config);
    let age = Duration::from_secs(15);
    let brief = tokio::spawn({
        let collector = collector.clone();
        async move { collector.snapshot_with(Detail::Summary, age).await.unwrap() }
    });
    has_begun.recv().await.unwrap();
    let mut all = std::pin::pin!(collector.snapshot(age));
    assert!(futures::poll!(&mut all).is_pending());
    drop(release);
    let (brief, all) = (brief.await.unwrap(), all.await.unwrap());
    assert!(Arc::ptr_eq(&brief, &all) && all.detail == Detail::All);
    assert_eq!(cgroups.cgroups.rounds.load(Ordering::SeqCst), 1);
}

/// Calls a hook before the cgroups are listed.
struct Listing {
    cgroups: Arc<Hooked>,
    before_list: Box<dyn Fn() + Send + Sync>,
}

impl Cgroups for Listing {
    fn list(&self, root: &str) -> kubelet_stats::Result<Listed> {
        (self.before_list)();
        self.cgroups.list(root)
    }

    fn spec(&self, name: &str) -> kubelet_stats::Result<Spec> {
        self.cgroups.spec(name)
    }

    fn usage(&self, name: &str, spec: &Spec) -> kubelet_stats::Result<CgroupUsage> {
        self.cgroups.usage(name, spec)
    }

    fn processes(&self, name: &str) -> kubelet_stats::Result<Vec<u32>> {
        self.cgroups.processes(name)
    }

    fn has_psi(&self) -> bool {
        false
    }
}

/// Blocks for one path until it is released.
struct Hanging {
    path: PathBuf,
    release: Mutex<mpsc::Receiver<()>>,
    asked: AtomicUsize,
}

impl StatFs for Hanging {
    fn stat(&self, path: &Path) -> std::io::Result<StatFsResult> {
        if path == self.path {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let _ = self.release.lock().recv();
        }
        Ok(StatFsResult {
            major: 1,
            minor: match path.to_str() {
                Some("/") => 1,
                Some("/mnt") => 2,
                _ => 3,
            },
            capacity: 1000,
            ..Default::default()
        })
    }

    fn files(&self, path: &Path) -> Option<FileUsage> {
        if path.starts_with(&self.path) {
            let _ = self.release.lock().recv();
        }
        None
    }
}

#[tokio::test]
async fn a_mount_that_hangs() {
    let tree = node();
    tree.write(
        "proc/self/mountinfo",
        "1 0 1:1 / / rw - ext4 /dev/vda rw\n2 1 1:2 / /mnt rw - nfs4 server:/x rw\n3 1 1:3 / /last rw - nfs4 zone:/y rw\n",
    );
    let (release, released) = mpsc::channel();
    let stat = Arc::new(Hanging {
        path: "/mnt".into(),
        release: Mutex::new(released),
        asked: AtomicUsize::new(0),
    });
    let file_systems = HostFileSystems::new(tree.path("proc"), Vec::new(), stat.clone(), Clock::system())
        .with_timeout(Duration::from_secs(1));
    let file_systems = Arc::new(file_systems);
    let mut config = tree.config(&["/kubepods"]);
    config.file_systems = file_systems.clone();
    let collector = Collector::new(config);
    for _ in 0..3 {
        let snapshot = read(&collector).await;
        let devices: Vec<_> = snapshot
            .cgroup("/")
            .unwrap()
            .usage
            .file_systems
            .iter()
            .map(|fs| fs.device.clone())
            .collect();
        assert_eq!(devices, ["/dev/vda", "zone:/y"], "those before and behind it");
        assert_eq!(snapshot.cgroups.len(), 5);
    }
    assert_eq!(stat.asked.load(Ordering::SeqCst), 1, "no second thread hangs");
    let error = file_systems.of_path(Path::new("/mnt")).await.unwrap_err();
    assert!(matches!(error, Error::FileSystemHangs { .. }), "{error}");
    assert_eq!(
        file_systems.of_path(Path::new("/")).await.unwrap().device,
        "/dev/vda"
    );
    // It answers again.
    drop(release);
    while file_systems.of_path(Path::new("/mnt")).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        read(&collector)
            .await
            .cgroup("/")
            .unwrap()
            .usage
            .file_systems
            .len(),
        3
    );
}

#[tokio::test]
async fn the_runtime_is_asked_about_new_containers_only() {
    let tree = node();
    let sandbox = RuntimeSandbox {
        id: "1".into(),
        namespace: "default".into(),
        pod: "web".into(),
        uid: "a".into(),
        ready: true,
        ..Default::default()
    };
    let container = |id: &str, name: &str| RuntimeContainer {
        id: id.into(),
        sandbox_id: "1".into(),
        name: name.into(),
        running: true,
        ..Default::default()
    };
    let runtime = Arc::new(FixedRuntime::default());
    *runtime.list.lock() = RuntimeList {
        sandboxes: vec![sandbox],
        containers: vec![container("2", "main")],
    };
    tree.write("sys/fs/cgroup/cpu/kubepods/poda/1/cgroup.procs", "77\n");
    let line = "eth0: 10 1 2 3 0 0 0 0 20 4 5 6 0 0 0 0";
    tree.write(
        "proc/77/net/dev",
        &format!("Inter-|\n face |\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  {line}\n"),
    );
    tree.write(
        "proc/77/limits",
        "Max open files            100                 unlimited                 files     \n",
    );
    let mut config = tree.config(&["/kubepods"]);
    config.runtime = Some(runtime.clone());
    let collector = Collector::new(config);
    let listed = || runtime.listed.load(Ordering::SeqCst);

    let snapshot = read(&collector).await;
    let pod = snapshot.cgroup(POD).unwrap();
    assert_eq!(pod.pod.as_ref().unwrap().name, "web");
    assert!(pod.container.is_none());
    let sandbox = snapshot.cgroup("/kubepods/poda/1").unwrap();
    assert!(sandbox.container.as_ref().unwrap().is_sandbox && sandbox.spec.has_network);
    let [eth0] = &sandbox.usage.network.interfaces[..] else {
        panic!("{:?}", sandbox.usage.network)
    };
    assert_eq!((eth0.rx_bytes, eth0.tx_bytes, eth0.tx_dropped), (10, 20, 6));
    assert_eq!(sandbox.usage.processes.ulimits[0].soft, 100);
    let main = snapshot.cgroup("/kubepods/poda/2").unwrap();
    assert_eq!(main.container.as_ref().unwrap().name, "main");
    assert_eq!(main.pod.as_ref().unwrap().uid, "a");
    assert!(!main.spec.has_network);
    read(&collector).await;
    assert_eq!(listed(), 1);

    // A new container, which the runtime lists a little later.
    tree.add_v1("/kubepods/poda/3", 1, 1);
    assert!(
        read(&collector)
            .await
            .cgroup("/kubepods/poda/3")
            .unwrap()
            .container
            .is_none()
    );
    runtime.list.lock().containers.push(container("3", "side"));
    let snapshot = read(&collector).await;
    assert_eq!(
        snapshot
            .cgroup("/kubepods/poda/3")
            .unwrap()
            .container
            .as_ref()
            .unwrap()
            .name,
        "side"
    );
    assert_eq!(listed(), 3);
    // A cgroup that is no container's.
    tree.add_v1("/kubepods/poda/other", 1, 1);
    for _ in 0..9 {
        read(&collector).await;
    }
    assert_eq!(listed(), 6);
}

#[tokio::test]
async fn a_device_has_the_name_of_its_file_system_in_the_root_cgroup_only() {
    let tree = node();
    tree.write("sys/block/dm-0/dev", "1:1\n");
    tree.write("sys/block/dm-0/size", "8\n");
    tree.write(
        "proc/self/mountinfo",
        "1 0 1:1 / / rw - ext4 /dev/mapper/root rw\n",
    );
    for name in ["", "/kubepods"] {
        let file = format!("sys/fs/cgroup/blkio{name}/blkio.throttle.io_service_bytes_recursive");
        tree.write(&file, "1:1 Read 5\n1:1 Total 5\nTotal 5\n");
        let file = format!("sys/fs/cgroup/blkio{name}/blkio.throttle.io_serviced_recursive");
        tree.write(&file, "1:1 Read 5\n1:1 Total 5\nTotal 5\n");
    }
    let snapshot = read(&tree.collector(&["/kubepods"])).await;
    let device = |name: &str| {
        let io = &snapshot.cgroup(name).unwrap().usage.disk_io.io_service_bytes;
        io[0].device.clone()
    };
    assert_eq!(device("/"), "/dev/mapper/root");
    assert_eq!(device("/kubepods"), "/dev/dm-0");
}

/// No file systems.
pub(crate) struct NoFileSystems;

#[async_trait::async_trait]
impl kubelet_stats::source::FileSystems for NoFileSystems {
    async fn of_path(&self, path: &Path) -> kubelet_stats::Result<kubelet_stats::reading::FileSystem> {
        Err(Error::NoFileSystem {
            path: path.to_owned(),
        })
    }

    async fn all(&self) -> Arc<[kubelet_stats::reading::FileSystem]> {
        Arc::default()
    }

    async fn files(&self, paths: Vec<PathBuf>) -> Vec<Option<FileUsage>> {
        vec![None; paths.len()]
    }
}
