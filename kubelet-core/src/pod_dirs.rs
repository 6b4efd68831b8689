//! The folders of pods that are gone.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::{Disk, PodCache, PodUid, PodWorkersHandle, RootDir};

/// Removes the folders of pods that nobody knows any more (`cleanupOrphanedPodDirs`). It runs beside the sync loop:
/// a file system that hangs holds up nothing but the next removal.
#[derive(Debug)]
pub(crate) struct OrphanedPodDirs {
    pub(crate) root_dir: RootDir,
    pub(crate) disk: Disk,
    pub(crate) cache: PodCache,
    pub(crate) workers: PodWorkersHandle,
    /// The pods that are known: their folders stay.
    pub(crate) known: HashSet<PodUid>,
}

impl OrphanedPodDirs {
    pub(crate) async fn remove(self) {
        let dir = self.root_dir.pods_dir();
        let Ok(found) = self.disk.run(move || list(&dir)).await else {
            return;
        };
        for uid in found.into_iter().filter(|uid| self.is_orphan(uid)) {
            let (dir, volumes) = (self.root_dir.pod_dir(&uid), self.root_dir.pod_volumes_dir(&uid));
            let removed = self.disk.run(move || match has_entries(&volumes) {
                true => Ok(false),
                false => fs::remove_dir_all(dir).map(|()| true),
            });
            match removed.await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(%uid, "Orphaned pod found, but volumes are still in its folder"),
                Err(error) => tracing::warn!(%uid, %error, "Cannot remove the folder of an orphaned pod"),
            }
        }
    }

    fn is_orphan(&self, uid: &PodUid) -> bool {
        // A pod may have come since the known ones were counted, and what was not looked at yet may run.
        let may_run = self.workers.could_have_running_containers(uid)
            || self.cache.observed_at(uid).is_none()
            || self.cache.get(uid).is_ok_and(|status| status.is_running());
        !self.known.contains(uid) && !may_run
    }
}

/// The pods that have a folder.
fn list(dir: &Path) -> io::Result<Vec<PodUid>> {
    let names = fs::read_dir(dir)?.flatten().map(|entry| entry.file_name());
    let mut uids: Vec<PodUid> = names.filter_map(|name| name.to_str().map(PodUid::new)).collect();
    uids.sort_unstable();
    Ok(uids)
}

fn has_entries(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok()))
}
