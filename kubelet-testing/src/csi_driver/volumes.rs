//! The volumes that are staged and published, and what of it is on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tonic::Status;

use super::VOLUME_FILE;
use super::mounts::Mounts;

#[derive(Default)]
pub(super) struct Volumes {
    /// By volume.
    staged: BTreeMap<String, PathBuf>,
    /// Volume and target.
    published: BTreeSet<(String, PathBuf)>,
    pub(super) violations: Vec<String>,
}

type Result = std::result::Result<(), Status>;

impl Volumes {
    pub(super) fn staged(&self) -> Vec<(String, PathBuf)> {
        self.staged
            .iter()
            .map(|(volume, path)| (volume.clone(), path.clone()))
            .collect()
    }

    pub(super) fn published(&self) -> Vec<(String, PathBuf)> {
        self.published.iter().cloned().collect()
    }

    fn violation(&mut self, what: String) -> Result {
        self.violations.push(what.clone());
        Err(Status::failed_precondition(what))
    }

    pub(super) fn lose_all(&mut self) {
        std::mem::take(&mut self.staged)
            .values()
            .for_each(|path| forget(path));
        let published = std::mem::take(&mut self.published);
        published.iter().for_each(|(_, target)| forget(target));
    }

    pub(super) fn stage(&mut self, volume: &str, path: &Path, mounts: &Mounts) -> Result {
        if volume.is_empty() || path.as_os_str().is_empty() {
            return Err(Status::invalid_argument(
                "a volume id and a staging path are required",
            ));
        }
        if let Some(other) = self.staged.get(volume).filter(|staged| *staged != path).cloned() {
            return self.violation(format!(
                "{volume} is staged at {} and now at {}",
                other.display(),
                path.display()
            ));
        }
        if !path.is_dir() {
            return self.violation(format!("the staging path {} is no folder", path.display()));
        }
        mounts.stage(volume, path).map_err(internal)?;
        self.staged.insert(volume.to_owned(), path.to_owned());
        Ok(())
    }

    pub(super) fn unstage(&mut self, volume: &str, path: &Path, mounts: &Mounts) -> Result {
        if self.published.iter().any(|(published, _)| published == volume) {
            return self.violation(format!("{volume} is unstaged while it is published"));
        }
        if self.staged.get(volume).is_some_and(|staged| staged == path) {
            mounts.unstage(path).map_err(internal)?;
            self.staged.remove(volume);
        }
        Ok(())
    }

    pub(super) fn publish(
        &mut self,
        volume: &str,
        target: &Path,
        must_be_staged: bool,
        is_block: bool,
        mounts: &Mounts,
    ) -> Result {
        if volume.is_empty() || target.as_os_str().is_empty() {
            return Err(Status::invalid_argument("a volume id and a target are required"));
        }
        if must_be_staged && !self.staged.contains_key(volume) {
            return self.violation(format!("{volume} is published without being staged"));
        }
        let key = (volume.to_owned(), target.to_owned());
        if !target.parent().is_some_and(Path::is_dir) {
            return self.violation(format!(
                "the folder above the target {} is missing",
                target.display()
            ));
        }
        if !self.published.contains(&key) {
            let staged = self.staged.get(volume).map(PathBuf::as_path);
            mounts
                .publish(volume, staged, target, is_block)
                .map_err(internal)?;
            self.published.insert(key);
        }
        Ok(())
    }

    pub(super) fn unpublish(&mut self, volume: &str, target: &Path, mounts: &Mounts) -> Result {
        if self.published.remove(&(volume.to_owned(), target.to_owned())) {
            mounts.unpublish(target).map_err(internal)?;
        }
        Ok(())
    }
}

/// What a power loss leaves: folders without what was mounted there.
fn forget(mounted: &Path) {
    let _ = fs::remove_file(mounted.join(VOLUME_FILE));
}

fn internal(error: io::Error) -> Status {
    Status::internal(error.to_string())
}
