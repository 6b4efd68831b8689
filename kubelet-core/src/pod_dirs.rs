//! Removes the folders and cgroups of pods that are gone.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::changes::Changes;
use crate::deadline::within;
use crate::sub_paths::clean_sub_paths;
use crate::{
    Disk, PodCache, PodContainerManager, PodManager, PodUid, PodWorkersHandle, RootDir, VolumeManager,
};

/// The first clean-up after this time checks all folders, in case another process left one.
const LOOK_PERIOD: Duration = Duration::from_secs(60);
/// The time limit for the volumes of one pod. Then the next pod is handled.
const UNMOUNT_DEADLINE: Duration = Duration::from_secs(30);

/// Removes the cgroups and then the folders of pods that no part of the agent knows (`cleanupOrphanedPodCgroups`,
/// `cleanupOrphanedPodDirs`). It runs beside the sync loop: a file system that hangs blocks only the next removal.
///
/// It runs when a pod is gone, again while something of a gone pod is left, and periodically.
pub(crate) struct OrphanedPodDirs {
    removal: Removal,
    /// One removal at a time. It returns whether something of a gone pod is left.
    under_way: JoinSet<bool>,
    /// A pod is gone, or may be, since the last removal started.
    is_due: bool,
    looked_at: Instant,
    /// Counts removals that left something behind.
    changes: Changes,
}

impl OrphanedPodDirs {
    pub(crate) fn new(
        root_dir: RootDir,
        disk: Disk,
        cgroups: Arc<dyn PodContainerManager>,
        cache: PodCache,
        pods: PodManager,
        workers: PodWorkersHandle,
        volumes: Arc<dyn VolumeManager>,
    ) -> Self {
        let removal = Removal {
            root_dir,
            disk,
            cgroups,
            cache,
            pods,
            workers,
            volumes,
        };
        Self {
            removal,
            under_way: JoinSet::new(),
            is_due: true,
            looked_at: Instant::now(),
            changes: Changes::default(),
        }
    }

    /// Starts a removal if one is due. `known` pods are kept.
    pub(crate) fn tend(&mut self, known: &HashSet<PodUid>, some_went: bool) {
        self.is_due |= some_went || self.looked_at.elapsed() >= LOOK_PERIOD;
        match self.under_way.try_join_next() {
            Some(left) => self.is_due |= left.unwrap_or(true),
            None if !self.under_way.is_empty() => return,
            None => {}
        }
        if std::mem::take(&mut self.is_due) {
            self.looked_at = Instant::now();
            let removing = self.removal.clone().run(known.clone());
            let changes = self.changes.clone();
            self.under_way.spawn(async move {
                let is_left = removing.await;
                if is_left {
                    changes.note();
                }
                is_left
            });
        }
    }

    /// Whether there is nothing to remove, apart from a removal that is running.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_due
    }

    /// Changes when a removal has left something behind, so that it is retried.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(crate) async fn shutdown(&mut self) {
        self.under_way.shutdown().await;
    }
}

/// What is removed of a pod.
#[derive(Clone, Copy)]
enum Part {
    Cgroup,
    Dir,
}

#[derive(Clone)]
struct Removal {
    root_dir: RootDir,
    disk: Disk,
    cgroups: Arc<dyn PodContainerManager>,
    cache: PodCache,
    pods: PodManager,
    workers: PodWorkersHandle,
    volumes: Arc<dyn VolumeManager>,
}

impl Removal {
    /// Returns whether something of an unknown pod is left.
    async fn run(self, known: HashSet<PodUid>) -> bool {
        // Cgroups first: processes in them may use the folders.
        let cgroups_are_left = self.remove_cgroups(&known).await;
        self.remove_dirs(&known).await || cgroups_are_left
    }

    async fn remove_cgroups(&self, known: &HashSet<PodUid>) -> bool {
        match self.cgroups.pods().await {
            Ok(found) => self.remove_of_orphans(found, known, Part::Cgroup).await,
            Err(error) => {
                tracing::warn!(%error, "Cannot list the cgroups of pods");
                true
            }
        }
    }

    async fn remove_dirs(&self, known: &HashSet<PodUid>) -> bool {
        let dir = self.root_dir.pods_dir();
        match self.disk.run(move || list(&dir)).await {
            Ok(found) => self.remove_of_orphans(found, known, Part::Dir).await,
            // No pod has had a folder yet.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    async fn remove_of_orphans(&self, mut found: Vec<PodUid>, known: &HashSet<PodUid>, part: Part) -> bool {
        found.retain(|uid| !known.contains(uid));
        found.sort_unstable();
        let mut is_left = false;
        for uid in found {
            is_left |= self.may_run(&uid)
                || match part {
                    Part::Cgroup => !self.remove_cgroup(&uid).await,
                    Part::Dir => !self.remove_dir(&uid).await,
                };
        }
        is_left
    }

    /// Returns whether it is gone.
    async fn remove_cgroup(&self, uid: &PodUid) -> bool {
        // Its in-memory volumes are charged to this cgroup until they are unmounted.
        let volumes = self.root_dir.pod_volumes_dir(uid);
        let holds_volumes = self.disk.run(move || Ok(has_entries(&volumes))).await;
        if self.may_run(uid) {
            return false;
        }
        let done = match holds_volumes.unwrap_or(true) {
            true => self.cgroups.reduce_cpu_limits(uid).await.map(|()| false),
            false => self.cgroups.destroy(uid).await.map(|()| true),
        };
        done.unwrap_or_else(|error| {
            tracing::warn!(%uid, %error, "Cannot remove the cgroup of an orphaned pod");
            false
        })
    }

    /// Returns whether it is gone.
    async fn remove_dir(&self, uid: &PodUid) -> bool {
        // The volumes of a pod that an agent ended are unmounted by now. Those of a pod that went away while no agent
        // ran are not.
        let unmounted = self.volumes.unmount_orphaned(uid);
        if let Err(error) = within("unmount volumes", Some(uid), UNMOUNT_DEADLINE, unmounted).await {
            // Something may be mounted there. Reading it may hang, and removing it may lose data.
            tracing::warn!(%uid, %error, "Cannot unmount the volumes of an orphaned pod");
            return false;
        }
        if self.may_run(uid) {
            return false;
        }
        let dir = self.root_dir.pod_dir(uid);
        let removed = self.disk.run(move || remove(&dir)).await;
        match &removed {
            Ok(true) => {}
            Ok(false) => tracing::warn!(%uid, "Orphaned pod found, but volumes are not cleaned up"),
            Err(error) => tracing::warn!(%uid, %error, "Cannot remove the folder of an orphaned pod"),
        }
        removed.unwrap_or(false)
    }

    /// A pod may have been added since the known pods were collected, also while its volumes were unmounted: a static pod that comes
    /// back has the same UID. A pod that was not inspected yet may still run.
    fn may_run(&self, uid: &PodUid) -> bool {
        self.pods.pod(uid).is_some()
            || self.workers.could_have_running_containers(uid)
            || self.cache.observed_at(uid).is_none()
            || self.cache.get(uid).is_ok_and(|status| status.is_running())
    }
}

/// The pods that have a folder.
fn list(dir: &Path) -> io::Result<Vec<PodUid>> {
    let names = fs::read_dir(dir)?.flatten().map(|entry| entry.file_name());
    Ok(names.filter_map(|name| name.to_str().map(PodUid::new)).collect())
}

fn has_entries(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.any(|entry| entry.is_ok()))
}

/// `DefaultKubeletVolumesDirName`
const VOLUMES: &str = "volumes";
/// `DefaultKubeletVolumeDevicesDirName`: links to block devices.
const VOLUME_DEVICES: &str = "volumeDevices";
/// `DefaultKubeletVolumeSubpathsDirName`
const SUBPATHS: &str = "volume-subpaths";

/// Removes the folder of a pod, but no file in a volume and nothing on another file system: data on something that is
/// still mounted must not be lost. Returns whether everything is removed (`removeOrphanedPodVolumeDirs`).
fn remove(dir: &Path) -> io::Result<bool> {
    clean_sub_paths(&dir.join(SUBPATHS))?;
    let device = fs::symlink_metadata(dir)?.dev();
    let volumes_are_gone = remove_folders(&dir.join(VOLUMES), device)?;
    let devices_are_gone = remove_folders(&dir.join(VOLUME_DEVICES), device)?;
    Ok(volumes_are_gone && devices_are_gone && remove_all(dir, device)?)
}

/// Removes a folder and its sub-folders if they contain no files.
fn remove_folders(dir: &Path, device: u64) -> io::Result<bool> {
    remove_entries(dir, device, |path, is_dir| match is_dir {
        true => remove_folders(path, device),
        false => Ok(false),
    })
}

/// Removes a folder with its content, on its own file system.
fn remove_all(dir: &Path, device: u64) -> io::Result<bool> {
    remove_entries(dir, device, |path, is_dir| match is_dir {
        true => remove_all(path, device),
        false => fs::remove_file(path).map(|()| true),
    })
}

/// Removes the content of a folder, and then the folder if it is empty. A missing folder counts as removed.
fn remove_entries(
    dir: &Path,
    device: u64,
    remove: impl Fn(&Path, bool) -> io::Result<bool>,
) -> io::Result<bool> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut are_gone = true;
    for entry in entries {
        let entry = entry?;
        let metadata = entry.metadata()?;
        are_gone &= metadata.dev() == device && remove(&entry.path(), metadata.is_dir())?;
    }
    if are_gone {
        fs::remove_dir(dir)?;
    }
    Ok(are_gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of these paths in a pod's folder is still there afterwards; those that end with a slash are folders.
    fn left(made: &[&str]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("uid");
        for path in made {
            let path_of = dir.join(path);
            match path.ends_with('/') {
                true => fs::create_dir_all(path_of).unwrap(),
                false => {
                    fs::create_dir_all(path_of.parent().unwrap()).unwrap();
                    fs::write(path_of, "").unwrap();
                }
            }
        }
        assert_eq!(remove(&dir).unwrap_or(false), !dir.exists());
        let left = made.iter().filter(|path| dir.join(path).exists());
        left.map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn all_goes_but_what_is_in_volumes() {
        for gone in [
            &["checkpoint.json", "plugins/a/b/"][..],
            &["volumes/plugin/name/"],
            &["volumes/plugin/name/folder/", "etc-hosts"],
            &["volume-subpaths/volume/container/0/"],
            &["volume-subpaths/volume/container/0"],
            &["volume-subpaths/"],
            &["volumeDevices/plugin/", "volumes/plugin/"],
        ] {
            assert!(left(gone).is_empty(), "{gone:?}");
        }
        for stays in [
            &["volumes/plugin/name/file", "etc-hosts"][..],
            &["volume-subpaths/volume/container/0/file"],
            &["volumeDevices/plugin/link", "etc-hosts"],
        ] {
            assert_eq!(left(stays), stays);
        }
        let some = ["volumes/plugin/full/file", "volumes/plugin/empty/"];
        assert_eq!(left(&some), some[..1]);
    }

    #[test]
    fn a_link_goes_and_what_it_leads_to_stays() {
        let root = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (root.path().join("uid"), root.path().join("elsewhere"));
        fs::create_dir_all(dir.join("plugins")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.join("plugins/link")).unwrap();
        assert!(remove(&dir).unwrap() && !dir.exists());
        assert!(elsewhere.join("file").exists());
    }
}
