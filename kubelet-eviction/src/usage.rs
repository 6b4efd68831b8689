//! What a pod uses of a resource.

use k8s_openapi::api::core::v1::{Pod, Volume};
use kubelet_core::quantity::Amount;
use kubelet_core::stats::{FsStats, MemoryStats, PodStats};

use crate::observation::signed;

/// What of a pod is on a file system (`fsStatsType`). Images belong to no pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The writable layers of its containers (`fsStatsRoot`).
    pub(crate) writable_layers: bool,
    /// The logs of its containers (`fsStatsLogs`).
    pub(crate) logs: bool,
    /// Its local volumes (`fsStatsLocalVolumeSource`).
    pub(crate) volumes: bool,
}

/// The used bytes of a file system (`diskUsage`).
pub(crate) fn disk(fs: Option<&FsStats>) -> Amount {
    amount(fs.and_then(|fs| fs.used_bytes))
}

/// The used inodes of a file system (`inodeUsage`).
pub(crate) fn inodes(fs: Option<&FsStats>) -> Amount {
    amount(fs.and_then(|fs| fs.inodes_used))
}

/// The working set (`memoryUsage`).
pub(crate) fn memory(memory: Option<&MemoryStats>) -> Amount {
    amount(memory.and_then(|memory| memory.working_set_bytes))
}

/// The number of processes (`processUsage`).
pub(crate) fn processes(stats: &PodStats) -> u64 {
    let processes = stats.process_stats.as_ref();
    processes
        .and_then(|processes| processes.process_count)
        .unwrap_or(0)
}

pub(crate) fn amount(count: Option<u64>) -> Amount {
    Amount::from_units(signed(count.unwrap_or(0)))
}

/// What these parts of a pod use together, measured by `measure`: [`disk`] or [`inodes`] (`podDiskUsage`).
pub(crate) fn of_parts(
    pod: &Pod,
    stats: &PodStats,
    parts: Parts,
    measure: fn(Option<&FsStats>) -> Amount,
) -> Amount {
    let mut total = Amount::ZERO;
    for container in stats.containers.iter().flatten() {
        if parts.writable_layers {
            total = total + measure(container.rootfs.as_ref());
        }
        if parts.logs {
            total = total + measure(container.logs.as_ref());
        }
    }
    if parts.volumes {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes.filter(|volume| is_local(volume)) {
            let mut measured = stats.volume_stats.iter();
            let found = measured.find(|measured| measured.name == volume.name);
            total = total + measure(found.map(|volume| &volume.fs));
        }
    }
    total
}

/// Whether the volume is on the node's own disk (`localVolumeNames`).
fn is_local(volume: &Volume) -> bool {
    let on_disk = |medium: &Option<String>| medium.as_deref().unwrap_or_default().is_empty();
    volume.host_path.is_some()
        || volume.git_repo.is_some()
        || volume.config_map.is_some()
        || volume
            .empty_dir
            .as_ref()
            .is_some_and(|empty_dir| on_disk(&empty_dir.medium))
}
