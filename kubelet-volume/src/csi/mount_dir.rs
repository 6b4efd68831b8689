//! The folders of mounted volumes, and the data beside the mounts.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubelet_core::Disk;
use parking_lot::Mutex;

use super::paths::{VOLUME_DATA, data_dir_of};
use super::source::named;
use super::volume_data::VolumeData;
use crate::{Error, Mounter, Result};

const MODE: u32 = 0o750;

/// Makes and removes the folders of mounts.
#[derive(Clone)]
pub(crate) struct MountDirs {
    pub(crate) disk: Disk,
    pub(crate) mounter: Arc<dyn Mounter>,
    /// The mounts that were begun by this process and have neither succeeded nor failed for certain. Only these are
    /// cleaned up when the driver fails: any other one may be in use.
    begun: Arc<Mutex<HashSet<PathBuf>>>,
    /// The mounts that are there although the driver confirmed that it unmounted them.
    left_by_driver: Arc<Mutex<HashSet<PathBuf>>>,
}

impl MountDirs {
    pub(crate) fn new(disk: Disk, mounter: Arc<dyn Mounter>) -> Self {
        Self {
            disk,
            mounter,
            begun: Arc::default(),
            left_by_driver: Arc::default(),
        }
    }

    /// Makes the folder and those above it.
    pub(crate) async fn make(&self, dir: &Path) -> io::Result<()> {
        let dir = dir.to_owned();
        let make = move || DirBuilder::new().recursive(true).mode(MODE).create(dir);
        self.disk.run(make).await
    }

    /// Writes the data of the volume that is about to be mounted at `mount`.
    pub(crate) async fn begin(&self, mount: &Path, data: VolumeData) -> Result<()> {
        if !self.may_be_mounted(mount).await {
            self.begun.lock().insert(mount.to_owned());
        }
        let dir = data_dir_of(mount).to_owned();
        let file = dir.join(VOLUME_DATA);
        let saved = self.disk.run(move || data.save(&dir)).await;
        saved.map_err(|error| {
            Error::failed(named(format_args!(
                "failed to save volume data file {}: {error}",
                file.display()
            )))
        })
    }

    pub(crate) fn succeeded(&self, mount: &Path) {
        self.begun.lock().remove(mount);
        self.left_by_driver.lock().remove(mount);
    }

    /// The driver has confirmed that it unmounted this, and did not. Whether it did so before.
    pub(crate) fn is_left_again(&self, mount: &Path) -> bool {
        !self.left_by_driver.lock().insert(mount.to_owned())
    }

    /// The driver failed for certain: removes what [`begin`](Self::begin) made, unless the volume was mounted before.
    pub(crate) async fn failed(&self, mount: &Path) {
        if !self.begun.lock().contains(mount) {
            return;
        }
        if let Err(error) = self.remove(mount).await {
            tracing::error!(mount = %mount.display(), %error, "cannot remove the folder of a volume that was not mounted");
        }
    }

    /// Whether an earlier call, of this process or another one, may have mounted it.
    pub(crate) async fn may_be_mounted(&self, mount: &Path) -> bool {
        self.load(mount).await.is_ok()
    }

    pub(crate) async fn load(&self, mount: &Path) -> io::Result<VolumeData> {
        let dir = data_dir_of(mount).to_owned();
        self.disk.run(move || VolumeData::load(&dir)).await
    }

    /// The error of a mount that failed. Whether an earlier try mounted the volume, remains as open as it was: its data
    /// are there until it is unmounted.
    pub(crate) async fn failure(&self, mount: &Path, message: String) -> Error {
        match self.may_be_mounted(mount).await {
            true => Error::uncertain(message),
            false => Error::failed(message),
        }
    }

    /// Removes the folder and the data beside it, unless something is mounted there (`removeMountDir`).
    pub(crate) async fn remove(&self, mount: &Path) -> Result<()> {
        self.succeeded(mount);
        if self.mounter.is_mount_point(mount).await? {
            return Ok(());
        }
        let (mount, dir) = (mount.to_owned(), data_dir_of(mount).to_owned());
        let removed = self.disk.run(move || {
            Ok(remove_dir(&mount, "failed to remove dir")
                .and_then(|()| {
                    VolumeData::remove(&dir).map_err(|error| {
                        let file = dir.join(VOLUME_DATA);
                        format!("failed to delete volume data file [{}]: {error}", file.display())
                    })
                })
                .and_then(|()| remove_dir(&dir, "failed to delete volume path")))
        });
        let removed = removed.await.unwrap_or_else(|error| Err(error.to_string()));
        removed.map_err(|message| Error::failed(named(message)))
    }
}

/// Removes an empty folder, or the file that a driver mounted in its place.
fn remove_dir(path: &Path, what: &str) -> Result<(), String> {
    let removed = match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(path),
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{what} [{}]: {error}", path.display()))
        }
        _ => Ok(()),
    }
}
