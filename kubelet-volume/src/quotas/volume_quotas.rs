//! The quotas of volumes: which project each has, and what it uses (`quota_linux.go`).

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::Disk;
use parking_lot::Mutex;

use super::project_files::{LockedFiles, ProjectFiles};
use super::{ProjectId, ProjectQuotas, ProjectUsage, QuotaPrograms};
use crate::filesystem::path_error::reason;
use crate::{Error, MountPoint, Mounter, Result};

/// The first project of volumes (`FirstQuota`).
const FIRST: ProjectId = 1_048_577;
/// How many projects that have files but no folder are passed over (`maxUnusedQuotasToSearch`).
const MOST_PASSED_OVER: usize = 128;
/// The limit of each project: its files are counted, and never too many.
const NOT_ENFORCED: Option<u64> = Some(u64::MAX);

/// Gives volumes a project of their own, so that the file system counts what they use, and nobody has to walk over their
/// files (`fsquota.AssignQuota`, `ClearQuota`).
///
/// The projects are in `/etc/projects` and `/etc/projid`, as those of the kubelet. After a restart, a volume keeps the
/// project that it has there. No limit is enforced: the agent evicts a pod that uses too much. So a volume whose project
/// cannot be assigned is used without, and its files are counted.
pub struct VolumeQuotas {
    quotas: Arc<dyn ProjectQuotas>,
    files: ProjectFiles,
    disk: Disk,
    /// The file systems that are known to count.
    counting: Mutex<BTreeSet<(PathBuf, String)>>,
    assigned: Mutex<HashMap<PathBuf, Assigned>>,
    /// Two volumes must not get the same project.
    choosing: tokio::sync::Mutex<()>,
}

/// The quota of a volume.
#[derive(Clone)]
struct Assigned {
    file_system: MountPoint,
    project: ProjectId,
}

impl VolumeQuotas {
    /// With these quotas, and the files of this host.
    pub fn new(quotas: Arc<dyn ProjectQuotas>) -> Self {
        Self {
            quotas,
            files: ProjectFiles {
                projects: PathBuf::from("/etc/projects"),
                names: PathBuf::from("/etc/projid"),
            },
            disk: Disk::default(),
            counting: Mutex::default(),
            assigned: Mutex::default(),
            choosing: tokio::sync::Mutex::default(),
        }
    }

    /// With the quotas of this host's file systems: [`QuotaPrograms`].
    pub fn on_host() -> Self {
        Self::new(Arc::new(QuotaPrograms::new()))
    }

    /// Other files than `/etc/projects` and `/etc/projid`.
    #[must_use]
    pub fn files(mut self, projects: impl Into<PathBuf>, names: impl Into<PathBuf>) -> Self {
        self.files = ProjectFiles {
            projects: projects.into(),
            names: names.into(),
        };
        self
    }

    /// Which thread does file work.
    pub(crate) fn set_disk(&mut self, disk: Disk) {
        self.disk = disk;
    }

    /// Gives a volume a project, if its file system counts by project. `size` is the limit of the volume in bytes, zero for
    /// none. A volume that has a project keeps it.
    ///
    /// # Errors
    ///
    /// If it cannot be checked whether the file system counts, if no project is left, or if it cannot be assigned. The
    /// volume then has no quota.
    pub(crate) async fn assign(&self, mounter: &dyn Mounter, dir: &Path, size: u64) -> Result<()> {
        if self.has(dir) {
            return Ok(());
        }
        let Some(file_system) = self.counting_file_system(mounter, dir).await? else {
            return Ok(());
        };
        let project = self.assign_project(&file_system, dir, size).await?;
        tracing::debug!(dir = %dir.display(), project, size, "Assigned a quota");
        let assigned = Assigned { file_system, project };
        self.assigned.lock().insert(dir.to_owned(), assigned);
        Ok(())
    }

    async fn assign_project(&self, file_system: &MountPoint, dir: &Path, size: u64) -> Result<ProjectId> {
        let (project, is_known) = self.project_of(file_system, dir).await?;
        // The files of the volume have it, too. On ext4 it cannot be assigned again.
        if is_known && matches!(self.quotas.project(dir).await, Ok(Some(found)) if found == project) {
            return Ok(project);
        }
        let limit = NOT_ENFORCED.filter(|_| size > 0);
        let set = async {
            self.quotas.set_limit(file_system, project, limit).await?;
            self.quotas.assign(file_system, project, dir).await
        };
        if let Err(error) = set.await {
            if let Err(error) = self.release(dir, project).await {
                tracing::warn!(dir = %dir.display(), project, %error, "Cannot release a project");
            }
            return Err(error);
        }
        Ok(project)
    }

    /// The project that the folder has since before a restart, or a new one (`createProjectID`). Returns also whether it was
    /// known.
    async fn project_of(&self, file_system: &MountPoint, dir: &Path) -> Result<(ProjectId, bool)> {
        let _turn = self.choosing.lock().await;
        let locked = self.lock_files().await?;
        if let Some(known) = locked.find(dir) {
            return Ok((known, true));
        }
        let (taken, mut passed_over) = (locked.ids(), 0);
        let mut free = (FIRST..).filter(|id| !taken.contains(id));
        let found = loop {
            let id = free.next().filter(|_| passed_over <= MOST_PASSED_OVER);
            let id = id.ok_or_else(|| Error::failed("cannot find available quota ID"))?;
            // A project that somebody uses, although the files do not say so.
            if self.quotas.usage(file_system, id).await? == ProjectUsage::default() {
                break id;
            }
            passed_over += 1;
        };
        let dir = dir.to_owned();
        let added = self.disk.run(move || locked.add(&dir, found)).await;
        added.map_err(|error| Error::failed(format!("unable to write project files: {}", reason(&error))))?;
        Ok((found, false))
    }

    /// Frees the project of a volume that is about to be removed (`ClearQuota`). The volume may have it since before a
    /// restart. A volume without a quota stays as it is.
    pub(crate) async fn clear(&self, mounter: &dyn Mounter, dir: &Path) -> Result<()> {
        let known = self.assigned.lock().remove(dir);
        let (project, file_system) = match known {
            Some(known) => (known.project, Some(known.file_system)),
            None => {
                let (files, of) = (self.files.clone(), dir.to_owned());
                let found = self.disk.run(move || files.find(&of)).await;
                let found = found.map_err(|error| Error::failed(reason(&error)))?;
                let Some(project) = found else { return Ok(()) };
                (
                    project,
                    self.counting_file_system(mounter, dir).await.unwrap_or(None),
                )
            }
        };
        let limited = match &file_system {
            Some(file_system) => self.quotas.set_limit(file_system, project, None).await,
            None => Ok(()),
        };
        self.release(dir, project).await?;
        limited
    }

    /// Whether the volume has a quota.
    pub(crate) fn has(&self, dir: &Path) -> bool {
        self.assigned.lock().contains_key(dir)
    }

    /// What a volume uses; `None` if it has no quota.
    pub(crate) async fn usage(&self, dir: &Path) -> Result<Option<ProjectUsage>> {
        let of = |dir| self.assigned.lock().get(dir).cloned();
        let Some(before) = of(dir) else { return Ok(None) };
        let usage = self.quotas.usage(&before.file_system, before.project).await?;
        // By now another volume may have its project.
        let is_same = of(dir).is_some_and(|now| now.project == before.project);
        Ok(is_same.then_some(usage))
    }

    /// Removes the folder from the files (`removeProjectID`).
    async fn release(&self, dir: &Path, project: ProjectId) -> Result<()> {
        let _turn = self.choosing.lock().await;
        let (locked, dir) = (self.lock_files().await?, dir.to_owned());
        let removed = self.disk.run(move || locked.remove(&dir, project)).await;
        removed.map_err(|error| Error::failed(format!("unable to write project files: {}", reason(&error))))
    }

    async fn lock_files(&self) -> Result<LockedFiles> {
        let files = self.files.clone();
        let locked = self.disk.run(move || files.lock()).await;
        locked.map_err(|error| Error::failed(format!("system project files: {}", reason(&error))))
    }

    /// The file system of a folder, if it counts by project.
    async fn counting_file_system(&self, mounter: &dyn Mounter, dir: &Path) -> Result<Option<MountPoint>> {
        // The programs and files cannot have such a path in a line.
        if dir.to_str().is_none_or(|text| text.contains(char::is_whitespace)) {
            return Ok(None);
        }
        let path = dir.to_owned();
        let resolved = self.disk.run(move || path.canonicalize()).await;
        let resolved = resolved.map_err(|error| Error::io(dir, error))?;
        let Some(found) = file_system_of(mounter.mounts(Path::new("/")).await?, &resolved) else {
            return Ok(None);
        };
        let key = (found.path.clone(), found.source.clone());
        if self.counting.lock().contains(&key) {
            return Ok(Some(found));
        }
        if !self.quotas.is_counting(&found).await? {
            return Ok(None);
        }
        self.counting.lock().insert(key);
        Ok(Some(found))
    }
}

/// The mount that a path without links is on: the deepest, and of several on one folder the newest (`detectMountpoint`).
fn file_system_of(mounts: Vec<MountPoint>, path: &Path) -> Option<MountPoint> {
    let holders = mounts.into_iter().filter(|mount| path.starts_with(&mount.path));
    holders.max_by_key(|mount| mount.path.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_path_is_the_deepest_mount_above_it() {
        let mount = |source: &str, path: &str| MountPoint {
            source: source.to_owned(),
            path: path.into(),
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
        };
        let mounts = || {
            vec![
                mount("/dev/mapper/fedora-root", "/"),
                mount("old", "/mnt/virt"),
                mount("/dev/sdb1", "/mnt/virt"),
                mount("/dev/mapper/fedora-home", "/home"),
            ]
        };
        for (path, expected) in [
            ("/", Some("/dev/mapper/fedora-root")),
            ("/usr", Some("/dev/mapper/fedora-root")),
            ("/homes", Some("/dev/mapper/fedora-root")),
            ("/home/a", Some("/dev/mapper/fedora-home")),
            ("/mnt/virt/a/b", Some("/dev/sdb1")),
            ("", None),
        ] {
            let found = file_system_of(mounts(), Path::new(path)).map(|mount| mount.source);
            assert_eq!(found.as_deref(), expected, "{path}");
        }
    }
}
