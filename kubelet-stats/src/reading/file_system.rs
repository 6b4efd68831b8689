//! File systems.

use k8s_openapi::jiff::Timestamp;

/// A mounted file system (`info.FsStats`, `v2.FsInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSystem {
    /// When it was read.
    pub timestamp: Timestamp,
    /// Its device, e.g. `/dev/vda1`; of a tmpfs, its mountpoint.
    pub device: String,
    /// Its mountpoint.
    pub mountpoint: String,
    /// How it is read.
    pub kind: FileSystemKind,
    /// The size, in bytes (`Limit`).
    pub capacity: u64,
    /// The free bytes, those for root included.
    pub free: u64,
    /// The free bytes for users other than root.
    pub available: u64,
    /// The number of inodes. `None` if the file system has no fixed number.
    pub inodes: Option<u64>,
    /// The number of free inodes.
    pub inodes_free: Option<u64>,
    /// The device number.
    pub major: u64,
    /// The device number.
    pub minor: u64,
    /// The counters of the device. Zero if the kernel has none.
    pub io: IoCounters,
}

impl FileSystem {
    /// The used bytes (`Usage`).
    pub fn used(&self) -> u64 {
        self.capacity.saturating_sub(self.free)
    }

    /// The used inodes.
    pub fn inodes_used(&self) -> Option<u64> {
        Some(self.inodes?.saturating_sub(self.inodes_free?))
    }
}

/// How a file system is read (`fs.FsType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileSystemKind {
    /// By `statvfs`.
    #[default]
    Vfs,
    /// ZFS. It is read by `statvfs`, too.
    Zfs,
}

/// The counters of a block device (`fs.DiskStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// Reads that ended.
    pub reads_completed: u64,
    /// Reads that were merged.
    pub reads_merged: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// The time of reads, in milliseconds.
    pub read_time: u64,
    /// Writes that ended.
    pub writes_completed: u64,
    /// Writes that were merged.
    pub writes_merged: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// The time of writes, in milliseconds.
    pub write_time: u64,
    /// Operations that are in progress.
    pub io_in_progress: u64,
    /// The time with at least one operation, in milliseconds.
    pub io_time: u64,
    /// The time of all operations, those in progress included, in milliseconds.
    pub weighted_io_time: u64,
}
