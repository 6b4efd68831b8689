//! Questions to a file system. Each may block for as long as the file system hangs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::super::FileUsage;

/// Asks a file system. Replaced in tests.
pub trait StatFs: Send + Sync {
    /// The file system that contains `path`.
    ///
    /// # Errors
    ///
    /// The system's.
    fn stat(&self, path: &Path) -> io::Result<StatFsResult>;

    /// What a file, or the files directly in a folder use. `None` if there is no such path.
    fn files(&self, path: &Path) -> Option<FileUsage> {
        /// The unit of `st_blocks`.
        const BLOCK: u64 = 512;
        let metadata = std::fs::symlink_metadata(path).ok()?;
        let usage = |metadata: &std::fs::Metadata| FileUsage {
            bytes: metadata.blocks().saturating_mul(BLOCK),
            inodes: 1,
        };
        if !metadata.is_dir() {
            return Some(usage(&metadata));
        }
        let mut sum = FileUsage::default();
        for entry in std::fs::read_dir(path).ok()?.flatten() {
            // A file that is gone, because logs were rotated, uses nothing.
            let Some(metadata) = entry.metadata().ok().filter(|metadata| !metadata.is_dir()) else {
                continue;
            };
            let file = usage(&metadata);
            sum.bytes = sum.bytes.saturating_add(file.bytes);
            sum.inodes += file.inodes;
        }
        Some(sum)
    }
}

/// What `statvfs` and `stat` report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFsResult {
    /// The device number.
    pub major: u64,
    /// The device number.
    pub minor: u64,
    /// The size, in bytes.
    pub capacity: u64,
    /// The free bytes, those for root included.
    pub free: u64,
    /// The free bytes for users other than root.
    pub available: u64,
    /// The number of inodes.
    pub inodes: u64,
    /// The number of free inodes.
    pub inodes_free: u64,
}

/// Asks the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostStatFs;

impl StatFs for HostStatFs {
    fn stat(&self, path: &Path) -> io::Result<StatFsResult> {
        let device = std::fs::metadata(path)?.dev();
        let found = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok(StatFsResult {
            major: u64::from(rustix::fs::major(device)),
            minor: u64::from(rustix::fs::minor(device)),
            capacity: bytes(found.f_blocks),
            free: bytes(found.f_bfree),
            available: bytes(found.f_bavail),
            inodes: found.f_files,
            inodes_free: found.f_ffree,
        })
    }
}
