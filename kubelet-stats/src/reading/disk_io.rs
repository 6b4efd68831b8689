//! Disk I/O.

use kubelet_core::stats::PsiStats;

/// The disk I/O of a cgroup, for each kind of counter one entry for each device, by device number (`info.DiskIoStats`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskIo {
    /// Bytes.
    pub io_service_bytes: Vec<DeviceIo>,
    /// Operations.
    pub io_serviced: Vec<DeviceIo>,
    /// Operations that are queued.
    pub io_queued: Vec<DeviceIo>,
    /// Sectors of 512 bytes.
    pub sectors: Vec<DeviceIo>,
    /// The time from the start of an operation to its end, in nanoseconds.
    pub io_service_time: Vec<DeviceIo>,
    /// The time that operations waited in queues, in nanoseconds.
    pub io_wait_time: Vec<DeviceIo>,
    /// Operations that were merged.
    pub io_merged: Vec<DeviceIo>,
    /// The time that the device worked for the cgroup, in milliseconds.
    pub io_time: Vec<DeviceIo>,
    /// Stalls for I/O. Totals are in microseconds. Zero if the kernel does not report them.
    pub psi: PsiStats,
}

/// The counters of a device (`info.PerDiskStats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// The path of the device, e.g. `/dev/vda`. Empty if the device is unknown.
    pub device: String,
    /// Its major number.
    pub major: u64,
    /// Its minor number.
    pub minor: u64,
    /// The value of each operation: `Read`, `Write`, `Sync`, `Async`, `Discard`, `Total`, or `Count` if the kernel
    /// counts all operations together. Sorted by name.
    pub operations: Vec<(String, u64)>,
}

impl DeviceIo {
    /// The value of an operation.
    pub fn operation(&self, name: &str) -> Option<u64> {
        self.operations
            .iter()
            .find(|(operation, _)| operation == name)
            .map(|(_, value)| *value)
    }

    /// Sets the value of an operation.
    pub(crate) fn set(&mut self, operation: &str, value: u64) {
        match self
            .operations
            .binary_search_by(|(name, _)| name.as_str().cmp(operation))
        {
            Ok(found) => {
                if let Some((_, old)) = self.operations.get_mut(found) {
                    *old = value;
                }
            }
            Err(place) => self.operations.insert(place, (operation.to_owned(), value)),
        }
    }
}
