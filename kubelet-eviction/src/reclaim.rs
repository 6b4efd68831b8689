//! What the node can free before a pod is evicted.

use crate::config::FileSystems;
use crate::{Resource, Signal};

/// Something to free (`nodeReclaimFunc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Containers that have ended (`DeleteAllUnusedContainers`).
    DeadContainers,
    /// Images that no container uses (`DeleteUnusedImages`).
    UnusedImages,
}

/// What to free for a signal, in order (`buildSignalToNodeReclaimFuncs`).
pub(crate) fn reclaims(signal: Signal, file_systems: FileSystems) -> &'static [Reclaim] {
    const BOTH: &[Reclaim] = &[Reclaim::DeadContainers, Reclaim::UnusedImages];
    if matches!(signal.resource(), Resource::Memory | Resource::Pids) {
        return &[];
    }
    let images = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
    match (file_systems.dedicated_image_fs, file_systems.split_container_fs) {
        (false, _) => BOTH,
        (true, false) if node => &[],
        (true, false) => BOTH,
        (true, true) if images => &[Reclaim::UnusedImages],
        (true, true) => &[Reclaim::DeadContainers],
    }
}
