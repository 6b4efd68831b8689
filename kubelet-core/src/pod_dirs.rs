//! The folders of pods that are gone.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{Disk, PodCache, PodUid, PodWorkersHandle, RootDir};

/// The folders are looked through at least this often, should somebody else leave one.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// Removes the folders of pods that nobody knows any more (`cleanupOrphanedPodDirs`). It works beside the sync loop:
/// a file system that hangs holds up nothing but the next removal.
///
/// The folders are looked through when a pod went, again while one of a gone pod is left, and now and then.
#[derive(Debug)]
pub(crate) struct OrphanedPodDirs {
    removal: Removal,
    /// One removal at a time; it says whether a folder of a pod that is gone was left.
    under_way: JoinSet<bool>,
    /// A pod went, or may have, since the last removal began.
    is_due: bool,
    looked_at: Instant,
}

impl OrphanedPodDirs {
    pub(crate) fn new(root_dir: RootDir, disk: Disk, cache: PodCache, workers: PodWorkersHandle) -> Self {
        let removal = Removal {
            root_dir,
            disk,
            cache,
            workers,
        };
        Self {
            removal,
            under_way: JoinSet::new(),
            is_due: true,
            looked_at: Instant::now(),
        }
    }

    /// Looks through the folders, if that is due: those of the known pods stay.
    pub(crate) fn tend(&mut self, known: &HashSet<PodUid>, some_went: bool) {
        self.is_due |= some_went || self.looked_at.elapsed() >= LOOK_PERIOD;
        match self.under_way.try_join_next() {
            Some(left) => self.is_due |= left.unwrap_or(true),
            None if !self.under_way.is_empty() => return,
            None => {}
        }
        if std::mem::take(&mut self.is_due) {
            self.looked_at = Instant::now();
            self.under_way.spawn(self.removal.clone().run(known.clone()));
        }
    }

    pub(crate) async fn shutdown(&mut self) {
        self.under_way.shutdown().await;
    }
}

#[derive(Clone, Debug)]
struct Removal {
    root_dir: RootDir,
    disk: Disk,
    cache: PodCache,
    workers: PodWorkersHandle,
}

impl Removal {
    /// Says whether a folder of a pod that is not known was left.
    async fn run(self, known: HashSet<PodUid>) -> bool {
        let dir = self.root_dir.pods_dir();
        let mut found = match self.disk.run(move || list(&dir)).await {
            Ok(found) => found,
            // No pod had a folder yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return false,
            Err(_) => return true,
        };
        found.retain(|uid| !known.contains(uid));
        let mut is_left = false;
        for uid in found {
            if self.may_run(&uid) {
                is_left = true;
                continue;
            }
            let (dir, volumes) = (self.root_dir.pod_dir(&uid), self.root_dir.pod_volumes_dir(&uid));
            let removed = self.disk.run(move || match has_entries(&volumes) {
                true => Ok(false),
                false => fs::remove_dir_all(dir).map(|()| true),
            });
            let removed = removed.await;
            is_left |= !matches!(removed, Ok(true));
            match removed {
                Ok(true) => {}
                Ok(false) => tracing::warn!(%uid, "Orphaned pod found, but volumes are still in its folder"),
                Err(error) => tracing::warn!(%uid, %error, "Cannot remove the folder of an orphaned pod"),
            }
        }
        is_left
    }

    /// A pod may have come since the known ones were counted, and what was not looked at yet may run.
    fn may_run(&self, uid: &PodUid) -> bool {
        self.workers.could_have_running_containers(uid)
            || self.cache.observed_at(uid).is_none()
            || self.cache.get(uid).is_ok_and(|status| status.is_running())
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
