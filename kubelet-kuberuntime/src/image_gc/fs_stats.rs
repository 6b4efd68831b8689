//! The usage of the images' file system.

use std::path::PathBuf;

use async_trait::async_trait;
use kubelet_core::{Error, Result};

use crate::runtime::CriRuntime;

/// The capacity and the available space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// In bytes.
    pub capacity: u64,
    /// The space that is available to users other than root, in bytes.
    pub available: u64,
}

/// Reports the usage of the images' file system (`StatsProvider.ImageFsStats`). A [`CriRuntime`] on this host
/// implements it.
#[async_trait]
pub trait ImageFsStats: Send + Sync {
    /// The present usage. May be dropped and called again.
    async fn image_fs_stats(&self) -> Result<FsStats>;
}

/// The operating system's numbers for the images' file system that the runtime reports. The runtime must be on this
/// host.
#[async_trait]
impl ImageFsStats for CriRuntime {
    async fn image_fs_stats(&self) -> Result<FsStats> {
        let failed = |error| Error::runtime("ImageFsInfo", error);
        let info = self.image_fs_info().await.map_err(failed)?;
        let used = info.image_filesystems.into_iter().next();
        let mountpoint = used.and_then(|used| used.fs_id).map(|id| id.mountpoint);
        let Some(mountpoint) = mountpoint.filter(|path| !path.is_empty()) else {
            let error = std::io::Error::other("imageFs information is unavailable");
            return Err(Error::runtime("ImageFsInfo", error));
        };
        let path = PathBuf::from(mountpoint);
        let asked = path.clone();
        let stats = self.node.disk.run(move || {
            let stats = rustix::fs::statvfs(&asked)?;
            Ok(FsStats {
                capacity: stats.f_blocks.saturating_mul(stats.f_frsize),
                available: stats.f_bavail.saturating_mul(stats.f_frsize),
            })
        });
        stats.await.map_err(|error| Error::io(&path, None, error))
    }
}
