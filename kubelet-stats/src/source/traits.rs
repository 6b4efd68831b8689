//! The traits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Round;
use crate::Result;
use crate::reading::{
    CpuUsage, DiskIo, FileSystem, HugetlbUsage, Machine, MemoryUsage, NetworkUsage, Reading, Spec,
    SystemVersion, Ulimit,
};

/// The cgroups of a host: version 1, version 2, or recorded.
pub trait Cgroups: Send + Sync {
    /// The names of `root` and of all cgroups below it, `/kubepods` first, then `/kubepods/besteffort`. Empty if there is
    /// no such cgroup. Cgroups of mount units (`….mount`) are left out, as cAdvisor does.
    ///
    /// # Errors
    ///
    /// If the folder of `root` cannot be read. A cgroup below it that cannot be listed is only
    /// [left out](Listed::left_out).
    fn list(&self, root: &str) -> Result<Listed>;

    /// What a cgroup was given (`common.GetSpec`). Without parts that do not come from cgroups: network, file systems,
    /// the memory of the machine.
    ///
    /// # Errors
    ///
    /// If it does not exist ([`Error::is_gone`](crate::Error::is_gone)), or a file is not in its format.
    fn spec(&self, name: &str) -> Result<Spec>;

    /// What a cgroup uses (`libcontainer.Handler.GetStats`). `spec` was read just before: if a part of it is missing now, the
    /// cgroup is being removed.
    ///
    /// # Errors
    ///
    /// As for [`spec`](Self::spec). Never a part of the numbers.
    fn usage(&self, name: &str, spec: &Spec) -> Result<CgroupUsage>;

    /// The processes of a cgroup, without those of cgroups below it, in the order of the kernel.
    ///
    /// # Errors
    ///
    /// As for [`spec`](Self::spec).
    fn processes(&self, name: &str) -> Result<Vec<u32>>;

    /// [`spec`](Self::spec), [`usage`](Self::usage) and [`processes`](Self::processes), one after the other, which is the
    /// default. An implementation may open each folder only once, and leave out what `detail` does not need.
    ///
    /// # Errors
    ///
    /// As for these three.
    fn read(&self, name: &str, detail: Detail) -> Result<CgroupFiles> {
        let _ = detail;
        let spec = self.spec(name)?;
        let usage = self.usage(name, &spec)?;
        let processes = self.processes(name)?;
        Ok(CgroupFiles {
            spec,
            usage,
            processes,
            at_rest: false,
        })
    }

    /// As [`read`](Self::read), for many cgroups one after the other: `round` keeps their folders open. The default only calls
    /// [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    fn read_in(&self, round: &mut Round, name: &str, wanted: Wanted<'_>) -> Result<CgroupFiles> {
        let _ = round;
        self.read(name, wanted.detail)
    }

    /// The CPU time of a cgroup since it was created, in nanoseconds, as in [`usage`](Self::usage). `None` if CPU time is not
    /// counted. The default reads all of the cgroup; an implementation may read one file.
    ///
    /// # Errors
    ///
    /// As for [`spec`](Self::spec).
    fn cpu_time(&self, name: &str) -> Result<Option<u64>> {
        let read = self.read(name, Detail::Summary)?;
        Ok(read.spec.cpu.map(|_| read.usage.cpu.total))
    }

    /// The kernel reports stalls of cgroups (`IsPsiEnabled`).
    fn has_psi(&self) -> bool;
}

/// How much is read of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What the summary and the resource metrics show. Numbers that only `/metrics/cadvisor` shows may be 0: the limits of CPU
    /// time and of threads, CPU time in user and kernel mode, throttling, details of memory, disk I/O, huge pages, threads,
    /// open files and their limits, file systems, kills for lack of memory, processes of cgroups that are not a container's.
    Summary,
    /// Everything.
    #[default]
    All,
}

/// What [`Cgroups::read_in`] reads of a cgroup.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// How much.
    pub detail: Detail,
    /// Its processes, too. Without it, a reading for the summary may have none.
    pub processes: bool,
    /// An earlier reading of the same name with all details. What only a process of the cgroup can change may be copied from
    /// it, if none has run since then.
    pub before: Option<&'a Reading>,
}

/// Everything about a cgroup that its files contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupFiles {
    /// What it was given.
    pub spec: Spec,
    /// What it uses.
    pub usage: CgroupUsage,
    /// Its processes, in the order of the kernel.
    pub processes: Vec<u32>,
    /// None of its processes has run since [`Wanted::before`].
    pub at_rest: bool,
}

/// Cgroups that were listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The names.
    pub names: Vec<String>,
    /// Cgroups that could not be listed, e.g. because their path is too long. Those below them are not in `names`.
    pub left_out: Vec<String>,
}

/// What the files of a cgroup contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupUsage {
    /// CPU time.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
    /// Disk I/O, without the names of devices.
    pub disk_io: DiskIo,
    /// Huge pages, by size.
    pub hugetlb: Vec<HugetlbUsage>,
    /// The number of threads, those of cgroups below it included.
    pub threads: u64,
    /// The limit of `threads`; 0 without a limit.
    pub threads_max: u64,
    /// The number of its processes that were killed for lack of memory.
    pub oom_events: u64,
}

/// The processes of a host.
pub trait Processes: Send + Sync {
    /// The interfaces of the network namespace of a process (`/proc/PID/net/dev`).
    ///
    /// # Errors
    ///
    /// If the process has ended ([`Error::is_gone`](crate::Error::is_gone)), or the file is not in its format.
    fn network(&self, pid: u32) -> Result<NetworkUsage>;

    /// The number of the network namespace of a process: processes with the same one have the same
    /// [`network`](Self::network). `None`, the default: unknown.
    fn network_namespace(&self, pid: u32) -> Option<u64> {
        let _ = pid;
        None
    }

    /// The number of open files of a process, and how many of them are sockets (`/proc/PID/fd`).
    ///
    /// # Errors
    ///
    /// If the process has ended, or belongs to somebody else.
    fn open_files(&self, pid: u32) -> Result<(u64, u64)>;

    /// The limits of a process (`/proc/PID/limits`).
    ///
    /// # Errors
    ///
    /// As for [`network`](Self::network).
    fn ulimits(&self, pid: u32) -> Result<Vec<Ulimit>>;

    /// The largest number of threads that may run, and the number of those that run (`pidlimit.Stats`). `None` where it
    /// is unknown.
    fn process_limits(&self) -> (Option<i64>, Option<i64>);

    /// How long the machine has been running. `None`, the default: unknown.
    fn uptime(&self) -> Option<Duration> {
        None
    }
}

/// The machine.
pub trait MachineSource: Send + Sync {
    /// The machine (`machine.Info`).
    ///
    /// # Errors
    ///
    /// If `/proc/cpuinfo` or `/proc/meminfo` cannot be read.
    fn machine(&self) -> Result<Machine>;

    /// The versions of kernel and system.
    fn version(&self) -> SystemVersion;
}

/// The file systems of a host.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait FileSystems: Send + Sync {
    /// The file system that contains `path` (`GetDirFsInfo`).
    ///
    /// # Errors
    ///
    /// If there is none, or it does not answer in time.
    async fn of_path(&self, path: &Path) -> Result<FileSystem>;

    /// All mounted file systems with a device, one for each device (`GetGlobalFsInfo`). One that does not answer in time
    /// is left out.
    async fn all(&self) -> Arc<[FileSystem]>;

    /// What the files use: of a folder, the files directly in it, as the kubelet counts logs. `None` where there is no such
    /// path, or it does not answer in time. In the order of `paths`.
    async fn files(&self, paths: Vec<PathBuf>) -> Vec<Option<FileUsage>>;
}

/// What files use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUsage {
    /// Bytes of their blocks.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}
