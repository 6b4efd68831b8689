//! How full the disk is that holds the images.

use std::path::PathBuf;

use async_trait::async_trait;
use kubelet_core::{Error, Result};

use crate::runtime::CriRuntime;

/// How large a file system is, and how much of it is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// In bytes.
    pub capacity: u64,
    /// What users other than root may still write, in bytes.
    pub available: u64,
}

/// Tells how full the disk is that holds the images (`StatsProvider.ImageFsStats`). A [`CriRuntime`] on this host does.
#[async_trait]
pub trait ImageFsStats: Send + Sync {
    /// As it is now. May be dropped and called again.
    async fn image_fs_stats(&self) -> Result<FsStats>;
}

/// The file system of the images that the runtime names, as the operating system sees it: of a runtime on this host.
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
