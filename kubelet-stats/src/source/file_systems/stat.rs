//! Questions to a file system. Each may block for as long as the file system hangs.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, open, statat};

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
        let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if !is_folder(&stat) {
            return Some(usage(&stat));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(path, flags, Mode::empty()).ok()?;
        // Not on the heap: an allocator may return such a piece to the system and fetch it again, for each folder.
        let mut entries = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&folder, &mut entries);
        let mut sum = FileUsage::default();
        while let Some(Ok(entry)) = entries.next() {
            if entry.file_type().is_dir() {
                continue;
            }
            // A file that is gone, because logs were rotated, uses nothing.
            let stat = statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW).ok();
            if let Some(stat) = stat.filter(|stat| !is_folder(stat)) {
                let file = usage(&stat);
                sum.bytes = sum.bytes.saturating_add(file.bytes);
                sum.inodes += file.inodes;
            }
        }
        Some(sum)
    }
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

fn usage(stat: &Stat) -> FileUsage {
    /// The unit of `st_blocks`.
    const BLOCK: u64 = 512;
    FileUsage {
        bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK),
        inodes: 1,
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
