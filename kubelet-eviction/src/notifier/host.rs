//! The notifiers that fit a host.

use std::path::{Path, PathBuf};

use super::{CgroupV1Notifier, PressureStallNotifier, ThresholdNotifier, UsageFile, UsageWatch};
use crate::Signal;
use crate::threshold::Threshold;

/// Where a host shows its memory.
#[derive(Clone, Debug)]
pub struct MemoryHost {
    /// Where cgroups are mounted, e.g. `/sys/fs/cgroup`.
    pub cgroup_root: PathBuf,
    /// Where `/proc` is mounted.
    pub proc_root: PathBuf,
    /// The cgroup of all pods below the root, e.g. `kubepods` or `kubepods.slice` (`PodCgroupRoot`).
    pub pods_cgroup: PathBuf,
}

impl MemoryHost {
    /// This host, with its pods in this cgroup.
    pub fn new(pods_cgroup: impl Into<PathBuf>) -> Self {
        Self {
            cgroup_root: "/sys/fs/cgroup".into(),
            proc_root: "/proc".into(),
            pods_cgroup: pods_cgroup.into(),
        }
    }

    /// `IsCgroup2UnifiedMode`
    fn is_unified(&self) -> bool {
        self.cgroup_root.join("cgroup.controllers").exists()
    }
}

/// A notifier for each threshold of memory; on cgroups of version 2 also for stalls. Whether the kernel serves them shows at the
/// first update, and is logged.
pub fn memory_notifiers(thresholds: &[Threshold], host: &MemoryHost) -> Vec<Box<dyn ThresholdNotifier>> {
    let pods_cgroup = host.pods_cgroup.strip_prefix("/").unwrap_or(&host.pods_cgroup);
    let of_memory = |signal| {
        let thresholds = thresholds.iter();
        thresholds
            .filter(move |threshold| threshold.signal == signal)
            .cloned()
    };
    let of_node = || of_memory(Signal::MemoryAvailable);
    let of_pods = || of_memory(Signal::AllocatableMemoryAvailable);
    let mut notifiers: Vec<Box<dyn ThresholdNotifier>> = Vec::new();
    if !host.is_unified() {
        let memory = host.cgroup_root.join("memory");
        let mut watch = |threshold, cgroup: &Path| {
            notifiers.push(Box::new(CgroupV1Notifier::new(threshold, cgroup)));
        };
        of_node().for_each(|threshold| watch(threshold, &memory));
        of_pods().for_each(|threshold| watch(threshold, &memory.join(pods_cgroup)));
        return notifiers;
    }
    let pods = host.cgroup_root.join(pods_cgroup);
    let mut watch = |threshold, file| notifiers.push(Box::new(UsageWatch::new(threshold, file)));
    of_node().for_each(|threshold| watch(threshold, UsageFile::Meminfo(host.proc_root.join("meminfo"))));
    of_pods().for_each(|threshold| watch(threshold, UsageFile::Current(pods.join("memory.current"))));
    if of_node().next().is_some() {
        let stalls = host.proc_root.join("pressure/memory");
        notifiers.push(Box::new(PressureStallNotifier::new(stalls)));
    }
    if of_pods().next().is_some() {
        notifiers.push(Box::new(PressureStallNotifier::new(pods.join("memory.pressure"))));
    }
    notifiers
}
