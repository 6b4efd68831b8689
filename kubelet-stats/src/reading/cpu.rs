//! CPU time.

use kubelet_core::stats::PsiStats;

/// The CPU time that a cgroup has used (`info.CpuStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuUsage {
    /// All cores, in nanoseconds (`Usage.Total`).
    pub total: u64,
    /// In user mode, in nanoseconds.
    pub user: u64,
    /// In kernel mode, in nanoseconds.
    pub system: u64,
    /// Throttling by a quota.
    pub cfs: Cfs,
    /// The time that tasks ran and waited. The kubelet does not read it: `None`.
    pub schedstat: Option<Schedstat>,
    /// The average of runnable tasks times 1000 (`LoadAverage`). The kubelet does not read it: 0.
    pub load_average: i32,
    /// The average of tasks that sleep uninterruptibly times 1000 (`LoadDAverage`). The kubelet does not read it: 0.
    pub load_d_average: i32,
    /// Stalls for CPU time. Totals are in microseconds. Zero if the kernel does not report them.
    pub psi: PsiStats,
}

/// Throttling by the completely fair scheduler (`info.CpuCFS`). Of a cgroup v1 without a quota it is not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cfs {
    /// The number of periods that have passed.
    pub periods: u64,
    /// The number of periods in which the cgroup was throttled.
    pub throttled_periods: u64,
    /// The time in which it was throttled, in nanoseconds.
    pub throttled_time: u64,
    /// The number of periods in which it used more than its quota (`BurstsPeriods`).
    pub burst_periods: u64,
    /// The CPU time it used beyond its quota, in nanoseconds.
    pub burst_time: u64,
}

/// The time that tasks ran and waited (`info.CpuSchedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// On a CPU, in nanoseconds.
    pub run_time: u64,
    /// On a run queue, in nanoseconds.
    pub runqueue_time: u64,
    /// The number of time slices.
    pub run_periods: u64,
}
