//! Memory and huge pages.

use kubelet_core::stats::PsiStats;

/// The memory that a cgroup uses, in bytes (`info.MemoryStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryUsage {
    /// All memory, however long ago it was used.
    pub usage: u64,
    /// The maximum of `usage`.
    pub max_usage: u64,
    /// Page cache.
    pub cache: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// Swap.
    pub swap: u64,
    /// Files that are mapped.
    pub mapped_file: u64,
    /// `usage` without `total_inactive_file`.
    pub working_set: u64,
    /// Page cache that was used recently.
    pub total_active_file: u64,
    /// Page cache that was not used recently.
    pub total_inactive_file: u64,
    /// How often the limit was hit.
    pub failcnt: u64,
    /// Memory of the kernel.
    pub kernel: u64,
    /// Page faults. cAdvisor reads the same number for the cgroup alone and with those below it.
    pub pgfault: u64,
    /// Major page faults, as `pgfault`.
    pub pgmajfault: u64,
    /// Stalls for memory. Totals are in microseconds. Zero if the kernel does not report them.
    pub psi: PsiStats,
}

/// The huge pages of one size that a cgroup uses (`info.HugetlbStats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HugetlbUsage {
    /// The size of a page, e.g. `2MB`.
    pub page_size: String,
    /// In bytes.
    pub usage: u64,
    /// The maximum of `usage`, in bytes.
    pub max_usage: u64,
    /// How often the limit was hit.
    pub failcnt: u64,
}
