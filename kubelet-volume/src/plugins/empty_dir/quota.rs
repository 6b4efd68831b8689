//! Which volumes get a project quota, and the size it is for.

use kubelet_core::pod_limit;
use kubelet_core::quantity::Amount;

use super::source;
use crate::PodMount;

/// The size limit of a volume in bytes, zero for none; `None` if the volume gets no quota (`emptyDir.assignQuota`). The
/// limit is the volume's own or, if that is less, the limit of its pod for ephemeral storage
/// (`DesiredStateOfWorld.AddPodToVolume`).
///
/// Only a volume on the disk gets a quota, and only in a user namespace: the root of the host can move files to another
/// project.
pub(super) fn size(mount: &PodMount) -> Option<u64> {
    let source = source(&mount.spec)?;
    let is_on_disk = source.medium.as_deref().unwrap_or_default().is_empty();
    let is_confined = mount.pod.spec.as_ref()?.host_users == Some(false);
    if !is_on_disk || !is_confined {
        return None;
    }
    let own = source.size_limit.as_ref();
    let own = own.and_then(|limit| Amount::try_from(limit).ok());
    let of_pod = pod_limit(&mount.pod, "ephemeral-storage").map(|limit| limit.amount);
    let limits = [own, of_pod].into_iter().flatten();
    let least = limits.filter(|limit| limit.is_positive()).min();
    Some(
        least
            .and_then(|limit| u64::try_from(limit.value()).ok())
            .unwrap_or_default(),
    )
}
