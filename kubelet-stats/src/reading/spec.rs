//! What a cgroup was given: limits, times, and the container that it belongs to.

use k8s_openapi::jiff::Timestamp;

/// What a cgroup was given (`info.ContainerSpec`). A part is `None` where cAdvisor's `Has…` is false; then it shows no
/// numbers of that kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// When it was created. `None` if unknown.
    pub creation_time: Option<Timestamp>,
    /// CPU.
    pub cpu: Option<CpuSpec>,
    /// Memory.
    pub memory: Option<MemorySpec>,
    /// The limit of threads. `Some` also says that processes are counted.
    pub threads_max: Option<u64>,
    /// Huge pages are counted.
    pub has_hugetlb: bool,
    /// The network is counted here: in the root cgroup and in sandboxes.
    pub has_network: bool,
    /// File systems are read: in the root cgroup.
    pub has_file_systems: bool,
    /// Disk I/O is counted.
    pub has_disk_io: bool,
}

/// The CPU that a cgroup was given (`info.CpuSpec`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSpec {
    /// Shares; of cgroup v2, its weight as shares (`Limit`).
    pub shares: u64,
    /// CPU time for each period, in microseconds; 0 without a limit.
    pub quota: u64,
    /// The period, in microseconds.
    pub period: u64,
}

/// The memory that a cgroup was given, in bytes. Without a limit, a number is 0 or larger than any memory
/// (`info.MemorySpec`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySpec {
    /// The limit.
    pub limit: u64,
    /// What it may use before memory is taken from it (`Reservation`).
    pub reservation: u64,
    /// The limit of swap.
    pub swap_limit: u64,
}

/// A container of the runtime that a cgroup belongs to. The collector takes it from its `RuntimeUsages`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRecord {
    /// Its id in the runtime, without scheme: the first of cAdvisor's aliases, the label `name`.
    pub id: String,
    /// Its image: the label `image`.
    pub image: String,
    /// It is the sandbox of a pod.
    pub is_sandbox: bool,
    /// Its name in the pod; of a sandbox, empty (label `io.kubernetes.container.name`).
    pub name: String,
}

/// The pod that a cgroup belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID. Of a static pod, that of its source.
    pub uid: String,
}
