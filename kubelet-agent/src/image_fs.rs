//! The file system of images, for their garbage collection: what the stats report of it.

use async_trait::async_trait;
use kubelet_core::Error;
use kubelet_kuberuntime::{FsStats, ImageFsStats};
use kubelet_stats::NodeSummary;

/// What the summary reports, so that images are collected by the same numbers as pods are evicted.
pub(crate) struct ImageFs(pub(crate) NodeSummary);

#[async_trait]
impl ImageFsStats for ImageFs {
    async fn image_fs_stats(&self) -> kubelet_core::Result<FsStats> {
        let stats = self.0.image_fs_stats().await.map_err(|error| match error {
            kubelet_stats::Error::Runtime(error) => error,
            error => Error::runtime("ImageFsInfo", error),
        })?;
        // An unknown file system has a capacity of 0, which the collection reports (`InvalidDiskCapacity`).
        let stats = stats.unwrap_or_default();
        Ok(FsStats {
            capacity: stats.capacity_bytes.unwrap_or(0),
            available: stats.available_bytes.unwrap_or(0),
        })
    }
}
