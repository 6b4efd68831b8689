//! Limits of local storage: of `emptyDir` volumes, pods and containers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::quantity::{Amount, canonical};
use kubelet_core::stats::PodStats;

use crate::config::FileSystems;
use crate::usage;

/// A limit that is exceeded.
pub(crate) struct Exceeded {
    /// The label of the metric.
    pub(crate) signal: &'static str,
    pub(crate) message: String,
}

/// `signalEmptyDirFsLimit`
const EMPTY_DIR: &str = "emptydirfs.limit";
/// `signalEphemeralPodFsLimit`
const POD: &str = "ephemeralpodfs.limit";
/// `signalEphemeralContainerFsLimit`
const CONTAINER: &str = "ephemeralcontainerfs.limit";
/// The resource that limits are of.
const STORAGE: &str = "ephemeral-storage";

/// Whether any of the pods may exceed a limit.
pub(crate) fn has_limits(pods: &[Arc<Pod>]) -> bool {
    let has_limit = |pod: &Pod| {
        let of_volumes = pod.spec.as_ref().is_some_and(|spec| {
            let mut volumes = spec.volumes.iter().flatten();
            volumes.any(|volume| {
                let empty_dir = volume.empty_dir.as_ref();
                empty_dir.is_some_and(|empty_dir| empty_dir.size_limit.is_some())
            })
        });
        let of_containers = || {
            let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            containers.any(|container| {
                let limits = container.resources.as_ref();
                let limits = limits.and_then(|resources| resources.limits.as_ref());
                limits.is_some_and(|limits| limits.contains_key(STORAGE))
            })
        };
        of_volumes || of_containers() || kubelet_core::pod_limit(pod, STORAGE).is_some()
    };
    pods.iter().any(|pod| has_limit(pod))
}

/// The limit that the pod exceeds (`localStorageEviction`): of a volume, else of the pod, else of a container.
pub(crate) fn exceeded_by(pod: &Pod, stats: &PodStats, file_systems: FileSystems) -> Option<Exceeded> {
    of_empty_dir(pod, stats)
        .or_else(|| of_pod(pod, stats))
        .or_else(|| of_container(pod, stats, file_systems))
}

/// `emptyDirLimitEviction`
fn of_empty_dir(pod: &Pod, stats: &PodStats) -> Option<Exceeded> {
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    volumes.find_map(|volume| {
        let size = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let limit = Amount::try_from(size).ok()?;
        let mut measured = stats.volume_stats.iter().rev();
        let used = measured.find(|measured| measured.name == volume.name)?;
        let exceeds = limit.is_positive() && usage::disk(Some(&used.fs)) > limit;
        exceeds.then(|| Exceeded {
            signal: EMPTY_DIR,
            message: format!(
                "Usage of EmptyDir volume {:?} exceeds the limit {:?}. ",
                volume.name,
                canonical(size)
            ),
        })
    })
}

/// `podEphemeralStorageLimitEviction`
fn of_pod(pod: &Pod, stats: &PodStats) -> Option<Exceeded> {
    let limit = kubelet_core::pod_limit(pod, STORAGE)?;
    let used = usage::disk(stats.ephemeral_storage.as_ref());
    (used > limit.amount).then(|| Exceeded {
        signal: POD,
        message: format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "),
    })
}

/// `containerEphemeralStorageLimitEviction`. Writable layers count if they are on the file system of the node.
fn of_container(pod: &Pod, stats: &PodStats, file_systems: FileSystems) -> Option<Exceeded> {
    let containers = &pod.spec.as_ref()?.containers;
    let mut measured = stats.containers.iter().flatten();
    measured.find_map(|measured| {
        let mut used = usage::disk(measured.logs.as_ref());
        if !file_systems.dedicated_image_fs {
            used = used + usage::disk(measured.rootfs.as_ref());
        }
        let container = containers
            .iter()
            .find(|container| container.name == measured.name)?;
        let size = container.resources.as_ref()?.limits.as_ref()?.get(STORAGE)?;
        let limit = Amount::try_from(size).ok()?;
        let exceeds = !limit.is_zero() && used > limit;
        exceeds.then(|| Exceeded {
            signal: CONTAINER,
            message: format!(
                "Container {} exceeded its local ephemeral storage limit {:?}. ",
                measured.name,
                canonical(size)
            ),
        })
    })
}
