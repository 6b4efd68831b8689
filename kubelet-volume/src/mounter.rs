//! What plugins mount and unmount with.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use crate::Result;

/// Mounts file systems (the kubelet's `mount.Interface`). [`HostMounter`](crate::HostMounter) does it on this host; tests
/// have one in memory.
///
/// # Cancel safety
///
/// When a call is dropped, the mount or unmount may still happen.
#[async_trait]
pub trait Mounter: Send + Sync {
    /// Mounts `source` on the folder or file `target`. Options are those of `mount -o`, e.g. `bind`, `ro`.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if this process may not mount.
    async fn mount(&self, source: &str, target: &Path, fs_type: &str, options: &[String]) -> Result<()>;

    /// Unmounts what is mounted on `target` last. If nothing is mounted there, it does nothing.
    async fn unmount(&self, target: &Path) -> Result<()>;

    /// Whether something is mounted on `path`. A path that does not exist is no mount point. It must not hang on a
    /// server that is gone: it reads the mount table rather than the file system.
    async fn is_mount_point(&self, path: &Path) -> Result<bool>;

    /// All mounts at `below` or below it, the newest last.
    async fn mounts(&self, below: &Path) -> Result<Vec<MountPoint>>;

    /// Where else the file or folder `path` is mounted, e.g. all bind mounts of it (`GetMountRefs`). By default, the
    /// mounts that have it as their source.
    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let all = self.mounts(Path::new("/")).await?.into_iter();
        Ok(all
            .filter(|mount| Path::new(&mount.source) == path)
            .map(|mount| mount.path)
            .collect())
    }
}

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// What is mounted: a device, `server:/path`, `tmpfs`.
    pub source: String,
    /// Where.
    pub path: PathBuf,
    /// The type of the file system.
    pub fs_type: String,
    /// Its options.
    pub options: Vec<String>,
}
