//! Trees of files that stand for a host.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::stats::{
    RuntimeContainerUsage, RuntimeFileSystems, RuntimeList, RuntimePodUsage, RuntimeUsages,
};
use kubelet_core::{Clock, Disk, Result};
use kubelet_stats::source::{
    CgroupsV1, FileSystems, HostFileSystems, HostMachine, HostStatFs, ProcFs, StatFs,
};
use kubelet_stats::{Collector, CollectorConfig};
use tempfile::TempDir;

/// A host in a folder.
pub(crate) struct Tree {
    pub dir: TempDir,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// The place of a path of the host.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }

    /// What the collector needs of every host.
    pub(crate) fn add_machine(&self) {
        self.write("proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\n");
        self.write(
            "proc/meminfo",
            "MemTotal: 1000 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n",
        );
        self.write("proc/1/net/dev", "Inter-|\n face |\n");
        self.write(
            "proc/1/limits",
            "Max open files            1024                 4096                 files     \n",
        );
    }

    /// Reads this host, with cgroups of version 1 and the file systems of the real one.
    pub(crate) fn config(&self, roots: &[&str]) -> CollectorConfig {
        let clock = Clock::system();
        let cgroups = CgroupsV1::below(&self.path("sys/fs/cgroup"), None);
        CollectorConfig {
            cgroup_roots: roots.iter().map(|root| (*root).to_owned()).collect(),
            cgroups: Arc::new(cgroups),
            processes: Arc::new(ProcFs::new(self.path("proc"))),
            machine: Arc::new(HostMachine::new(self.dir.path(), clock)),
            file_systems: file_systems(&self.path("proc"), Arc::new(HostStatFs)),
            runtime: None,
            pods: None,
            clock,
            disk: Disk::default(),
        }
    }

    pub(crate) fn collector(&self, roots: &[&str]) -> Collector {
        Collector::new(self.config(roots))
    }
}

pub(crate) fn file_systems(proc: &Path, stat: Arc<dyn StatFs>) -> Arc<dyn FileSystems> {
    Arc::new(HostFileSystems::new(proc, Vec::new(), stat, Clock::system()))
}

/// A runtime that answers what it was given.
#[derive(Default)]
pub(crate) struct FixedRuntime {
    pub list: parking_lot::Mutex<RuntimeList>,
    pub usages: Vec<RuntimeContainerUsage>,
    pub pods: Option<Vec<RuntimePodUsage>>,
    pub file_systems: RuntimeFileSystems,
    pub listed: std::sync::atomic::AtomicUsize,
    pub measured: std::sync::atomic::AtomicUsize,
}

#[async_trait::async_trait]
impl RuntimeUsages for FixedRuntime {
    async fn list(&self) -> Result<RuntimeList> {
        self.listed.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(self.list.lock().clone())
    }

    async fn container_usages(&self) -> Result<Vec<RuntimeContainerUsage>> {
        self.measured.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(self.usages.clone())
    }

    async fn pod_usages(&self) -> Result<Option<Vec<RuntimePodUsage>>> {
        Ok(self.pods.clone())
    }

    async fn file_systems(&self) -> Result<RuntimeFileSystems> {
        Ok(self.file_systems.clone())
    }
}

impl Tree {
    /// A cgroup of version 1 whose processes have used `cpu` nanoseconds and use `rss` bytes.
    pub(crate) fn add_v1(&self, name: &str, cpu: u64, rss: u64) {
        let at = |controller: &str, file: &str| {
            format!("sys/fs/cgroup/{controller}{}/{file}", name.trim_end_matches('/'))
        };
        self.write(
            &at("cpu", "cpu.stat"),
            "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        );
        self.write(&at("cpu", "cpu.shares"), "1024\n");
        self.write(&at("cpu", "cgroup.procs"), "");
        self.write(&at("cpuacct", "cpuacct.stat"), "user 1\nsystem 2\n");
        self.write(&at("cpuacct", "cpuacct.usage"), &format!("{cpu}\n"));
        self.write(&at("memory", "memory.use_hierarchy"), "1\n");
        self.write(
            &at("memory", "memory.stat"),
            &format!("total_cache 0\ntotal_rss {rss}\ntotal_inactive_file 1000\npgfault 5\npgmajfault 6\n"),
        );
        self.write(
            &at("memory", "memory.usage_in_bytes"),
            &format!("{}\n", rss + 3000),
        );
        self.write(&at("memory", "memory.max_usage_in_bytes"), "0\n");
        self.write(&at("memory", "memory.failcnt"), "0\n");
        self.write(&at("memory", "memory.limit_in_bytes"), "9223372036854771712\n");
        self.write(&at("pids", "pids.current"), "3\n");
        self.write(&at("pids", "pids.max"), "max\n");
    }

    /// A machine whose root cgroup has used some CPU time.
    pub(crate) fn v1() -> Self {
        let tree = Self::new();
        tree.add_machine();
        tree.add_v1("/", 1_000_000, 50_000);
        tree
    }

    /// As [`v1`](Self::v1), with what a whole summary reads: the mounts are those of this host. The pod `a` has one file.
    pub(crate) fn node() -> Self {
        let tree = Self::v1();
        tree.write("proc/sys/kernel/pid_max", "32768\n");
        tree.write("proc/sys/kernel/threads-max", "192730\n");
        tree.write("proc/loadavg", "2.89 2.55 2.64 3/239 10766\n");
        tree.write("proc/uptime", "6896.62 6349.12\n");
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        tree.write("proc/self/mountinfo", &mountinfo);
        tree.write("var/lib/kubelet/pods/a/etc-hosts", "127.0.0.1 localhost\n");
        tree
    }
}
