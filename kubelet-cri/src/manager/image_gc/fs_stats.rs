//! How full the disk is that holds the images.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::{Disk, Error, Result};

use crate::{ImageService, v1};

/// How large a file system is, and how much of it is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStats {
    /// In bytes.
    pub capacity: u64,
    /// What users other than root may still write, in bytes.
    pub available: u64,
}

/// Tells how full the disk is that holds the images (`StatsProvider.ImageFsStats`).
#[async_trait]
pub trait ImageFsStats: Send + Sync {
    /// As it is now. May be dropped and called again.
    async fn image_fs_stats(&self) -> Result<FsStats>;
}

/// The file system that the runtime names, as the operating system sees it.
pub struct RuntimeImageFs {
    images: Arc<dyn ImageService>,
    disk: Disk,
}

impl RuntimeImageFs {
    /// That of the images of a runtime on this host. `disk` asks the operating system.
    pub fn new(images: Arc<dyn ImageService>, disk: Disk) -> Self {
        Self { images, disk }
    }
}

#[async_trait]
impl ImageFsStats for RuntimeImageFs {
    async fn image_fs_stats(&self) -> Result<FsStats> {
        let response = self.images.image_fs_info(v1::ImageFsInfoRequest {}).await;
        let response = response.map_err(|error| Error::runtime("ImageFsInfo", error))?;
        let used = response.image_filesystems.into_iter().next();
        let mountpoint = used.and_then(|used| used.fs_id).map(|id| id.mountpoint);
        let Some(mountpoint) = mountpoint.filter(|path| !path.is_empty()) else {
            let error = std::io::Error::other("imageFs information is unavailable");
            return Err(Error::runtime("ImageFsInfo", error));
        };
        let path = PathBuf::from(mountpoint);
        let asked = path.clone();
        let stats = self.disk.run(move || {
            let stats = rustix::fs::statvfs(&asked)?;
            Ok(FsStats {
                capacity: stats.f_blocks.saturating_mul(stats.f_frsize),
                available: stats.f_bavail.saturating_mul(stats.f_frsize),
            })
        });
        stats.await.map_err(|error| Error::io(&path, None, error))
    }
}
