//! Processes and threads.

/// The processes of a cgroup (`info.ProcessStats`). Of cgroups below it, only `threads` counts those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The number of processes.
    pub processes: u64,
    /// The number of open files.
    pub file_descriptors: u64,
    /// The number of open sockets.
    pub sockets: u64,
    /// The number of threads (`ThreadsCurrent`). 0 for the root cgroup.
    pub threads: u64,
    /// The limit of `threads`; 0 without a limit.
    pub threads_max: u64,
    /// Limits of the first process of a container, and of process 1 for the root cgroup. Empty otherwise.
    pub ulimits: Vec<Ulimit>,
}

/// A limit of a process (`info.UlimitSpec`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ulimit {
    /// `max_open_files`; no other is read.
    pub name: &'static str,
    /// The soft limit; -1 without a limit.
    pub soft: i64,
    /// The hard limit; -1 without a limit.
    pub hard: i64,
}
