//! What a driver does on the host to mount a volume.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kubelet_core::files;

use super::VOLUME_FILE;
use crate::MemoryMounter;

/// How volumes are mounted. In each case the folder holds the volume's name.
pub(super) enum Mounts {
    /// Not at all: the folder is the volume.
    None,
    /// Folders below this one are bound to the targets.
    Bound(PathBuf),
    /// In this table.
    InMemory(MemoryMounter),
}

impl Mounts {
    pub(super) fn stage(&self, volume: &str, path: &Path) -> io::Result<()> {
        fs::write(path.join(VOLUME_FILE), volume)?;
        if let Self::InMemory(mounter) = self
            && !mounter.is_mounted(path)
        {
            mounter.put(&Path::new("/dev").join(volume), path);
        }
        Ok(())
    }

    pub(super) fn unstage(&self, path: &Path) -> io::Result<()> {
        if let Self::InMemory(mounter) = self {
            mounter.take(path);
        }
        files::remove(&path.join(VOLUME_FILE))
    }

    /// `staged` is where the volume is staged, if it is.
    pub(super) fn publish(
        &self,
        volume: &str,
        staged: Option<&Path>,
        target: &Path,
        is_block: bool,
    ) -> io::Result<()> {
        if is_block {
            return fs::write(target, volume);
        }
        fs::create_dir_all(target)?;
        match self {
            Self::None => fs::write(target.join(VOLUME_FILE), volume),
            Self::Bound(backing) => {
                let backing = backing.join(volume);
                fs::create_dir_all(&backing)?;
                fs::write(backing.join(VOLUME_FILE), volume)?;
                #[cfg(target_os = "linux")]
                rustix::mount::mount_bind(&backing, target)?;
                Ok(())
            }
            Self::InMemory(mounter) => {
                let device = Path::new("/dev").join(volume);
                mounter.put(staged.unwrap_or(&device), target);
                fs::write(target.join(VOLUME_FILE), volume)
            }
        }
    }

    pub(super) fn unpublish(&self, target: &Path) -> io::Result<()> {
        match self {
            Self::Bound(_) if target.is_dir() => {
                #[cfg(target_os = "linux")]
                rustix::mount::unmount(target, rustix::mount::UnmountFlags::empty())?;
                return fs::remove_dir(target);
            }
            Self::InMemory(mounter) => mounter.take(target),
            Self::Bound(_) | Self::None => {}
        }
        match target.is_dir() {
            true => fs::remove_dir_all(target),
            false => files::remove(target),
        }
    }
}
