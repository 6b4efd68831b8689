//! The folders of pods that are gone.

use std::collections::HashSet;
use std::path::Path;

use crate::{PodCache, PodUid, PodWorkersHandle, RootDir};

/// Removes the folders of pods that nobody knows any more (`cleanupOrphanedPodDirs`). It runs beside the sync loop:
/// a file system that hangs holds up nothing but the next removal.
#[derive(Debug)]
pub(crate) struct OrphanedPodDirs {
    pub(crate) root_dir: RootDir,
    pub(crate) cache: PodCache,
    pub(crate) workers: PodWorkersHandle,
    /// The pods that are known: their folders stay.
    pub(crate) known: HashSet<PodUid>,
}

impl OrphanedPodDirs {
    pub(crate) async fn remove(self) {
        let Ok(mut entries) = tokio::fs::read_dir(self.root_dir.pods_dir()).await else {
            return;
        };
        while let Ok(Some(entry)) = entries.next_entry().await {
            let name = entry.file_name();
            let Some(uid) = name.to_str().map(PodUid::new).filter(|uid| self.is_orphan(uid)) else {
                continue;
            };
            if has_entries(&self.root_dir.pod_volumes_dir(&uid)).await {
                tracing::warn!(%uid, "Orphaned pod found, but volumes are still in its folder");
                continue;
            }
            if let Err(error) = tokio::fs::remove_dir_all(entry.path()).await {
                tracing::warn!(%uid, %error, "Cannot remove the folder of an orphaned pod");
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

async fn has_entries(dir: &Path) -> bool {
    match tokio::fs::read_dir(dir).await {
        Ok(mut entries) => entries.next_entry().await.is_ok_and(|entry| entry.is_some()),
        Err(_) => false,
    }
}
