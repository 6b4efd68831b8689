//! The order in which pods are evicted.

use std::cmp::Reverse;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::quantity::Amount;
use kubelet_core::stats::{FsStats, PodStats};

use crate::config::FileSystems;
use crate::observation::Usages;
use crate::usage::{self, Parts};
use crate::{Resource, Signal};

/// How pods are ranked for a signal (`buildSignalToRankFunc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ranking {
    /// `rankMemoryPressure`
    Memory,
    /// `rankPIDPressure`
    Processes,
    /// `rankDiskPressureFunc`
    Disk(Parts),
}

/// Sorts the pods: those to evict first come first. Pods that rank equal keep their order.
///
/// A pod whose usage is not known comes before the others. For memory and disk, a pod that uses more than it requests comes
/// first, then one of lower priority, then one that uses more above its request. For process ids, priority decides, then the
/// number of processes.
pub(crate) fn rank(pods: &mut [Arc<Pod>], signal: Signal, file_systems: FileSystems, usages: &Usages<'_>) {
    match ranking(signal, file_systems) {
        Ranking::Memory => pods.sort_by_cached_key(|pod| {
            let memory = |stats: &PodStats| usage::memory(stats.memory.as_ref());
            by_usage(pod, usages, memory, "memory", "memory")
        }),
        Ranking::Processes => pods.sort_by_cached_key(|pod| {
            let stats = usages.of(pod.uid_str());
            (
                priority(pod),
                stats.is_some(),
                Reverse(stats.map(usage::processes)),
            )
        }),
        Ranking::Disk(parts) => {
            let resource = signal.resource();
            let measure: fn(Option<&FsStats>) -> Amount = match resource {
                Resource::Inodes => usage::inodes,
                _ => usage::disk,
            };
            pods.sort_by_cached_key(|pod| {
                let used = |stats: &PodStats| usage::of_parts(pod, stats, parts, measure);
                // For inodes, too, the kubelet subtracts the request of bytes.
                by_usage(pod, usages, used, resource.as_str(), "ephemeral-storage")
            });
        }
    }
}

type Key = (bool, bool, i32, Reverse<Amount>);

/// Unknown usage, usage above the request of a resource, priority, usage above the request of another (`exceedMemoryRequests`,
/// `exceedDiskRequests`, `priority`, `memory`, `disk`).
fn by_usage(
    pod: &Pod,
    usages: &Usages<'_>,
    used: impl Fn(&PodStats) -> Amount,
    exceeded: &str,
    subtracted: &str,
) -> Key {
    let priority = priority(pod);
    let Some(stats) = usages.of(pod.uid_str()) else {
        return (false, false, priority, Reverse(Amount::ZERO));
    };
    let used = used(stats);
    let exceeds = used > kubelet_core::pod_request(pod, exceeded);
    let above = used - kubelet_core::pod_request(pod, subtracted);
    (true, !exceeds, priority, Reverse(above))
}

/// `PodPriority`
fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn ranking(signal: Signal, file_systems: FileSystems) -> Ranking {
    use Signal as S;
    let images = matches!(signal, S::ImageFsAvailable | S::ImageFsInodesFree);
    let node = matches!(signal, S::NodeFsAvailable | S::NodeFsInodesFree);
    match signal.resource() {
        Resource::Memory => return Ranking::Memory,
        Resource::Pids => return Ranking::Processes,
        Resource::EphemeralStorage | Resource::Inodes => {}
    }
    let everything = Parts {
        writable_layers: true,
        logs: true,
        volumes: true,
    };
    Ranking::Disk(
        match (file_systems.dedicated_image_fs, file_systems.split_container_fs) {
            (false, _) => everything,
            // Writable layers are beside the images.
            (true, false) => Parts {
                writable_layers: !node,
                logs: node,
                volumes: node,
            },
            // Images are alone, and belong to no pod.
            (true, true) if images => Parts {
                writable_layers: false,
                logs: false,
                volumes: false,
            },
            (true, true) => everything,
        },
    )
}
