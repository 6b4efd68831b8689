//! What a cgroup uses.

use k8s_openapi::jiff::Timestamp;

use super::{CpuUsage, DiskIo, FileSystem, HugetlbUsage, MemoryUsage, NetworkUsage, ProcessUsage};

/// What a cgroup uses (`info.ContainerStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// When it was read.
    pub timestamp: Timestamp,
    /// CPU time.
    pub cpu: CpuUsage,
    /// Memory.
    pub memory: MemoryUsage,
    /// Huge pages, by size.
    pub hugetlb: Vec<HugetlbUsage>,
    /// Disk I/O.
    pub disk_io: DiskIo,
    /// The network, of the root cgroup and of sandboxes.
    pub network: NetworkUsage,
    /// Processes.
    pub processes: ProcessUsage,
    /// File systems, of the root cgroup.
    pub file_systems: Vec<FileSystem>,
    /// The number of processes that were killed for lack of memory (`OOMEvents`).
    pub oom_events: u64,
}
