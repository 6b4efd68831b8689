//! The machine.

use k8s_openapi::jiff::Timestamp;

/// The machine (`info.MachineInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// When it was read.
    pub timestamp: Timestamp,
    /// `vendor_id` of `/proc/cpuinfo`.
    pub cpu_vendor_id: String,
    /// The number of logical CPUs.
    pub cores: u64,
    /// The number of physical cores.
    pub physical_cores: u64,
    /// The number of sockets.
    pub sockets: u64,
    /// The number of books; 0 but on s390x.
    pub books: u64,
    /// The number of drawers; 0 but on s390x.
    pub drawers: u64,
    /// The highest frequency, in kHz.
    pub cpu_frequency_khz: u64,
    /// `MemTotal`, in bytes.
    pub memory_capacity: u64,
    /// `SwapTotal`, in bytes.
    pub swap_capacity: u64,
    /// Memory modules by their type: bytes and number of modules.
    pub memory_by_type: Vec<(String, u64, u64)>,
    /// Huge pages of the whole machine, by size.
    pub huge_pages: Vec<HugePages>,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// The UUID of the firmware.
    pub system_uuid: String,
    /// The UUID of this boot.
    pub boot_id: String,
    /// NUMA nodes, by id. At least one.
    pub topology: Vec<NumaNode>,
    /// Block devices.
    pub disks: Vec<Disk>,
    /// Network interfaces of the host, without loopback and those of containers.
    pub network_devices: Vec<NetworkDevice>,
}

/// Huge pages of a size (`info.HugePagesInfo`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// The size of a page, in KiB.
    pub page_size: u64,
    /// The number of pages.
    pub pages: u64,
}

/// A NUMA node (`info.Node`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its id.
    pub id: u64,
    /// Its memory, in bytes.
    pub memory: u64,
    /// Its huge pages.
    pub huge_pages: Vec<HugePages>,
    /// Its cores.
    pub cores: Vec<Core>,
    /// Caches that all its cores share.
    pub caches: Vec<Cache>,
    /// The distance to each node.
    pub distances: Vec<u64>,
}

/// A physical core (`info.Core`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Core {
    /// Its id, unique in its socket.
    pub id: u64,
    /// Its logical CPUs.
    pub threads: Vec<u64>,
    /// Its own caches.
    pub caches: Vec<Cache>,
    /// Caches that some cores of the node share.
    pub uncore_caches: Vec<Cache>,
    /// Its socket.
    pub socket_id: u64,
    /// Its book; empty but on s390x.
    pub book_id: String,
    /// Its drawer; empty but on s390x.
    pub drawer_id: String,
}

/// A cache (`info.Cache`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Its id.
    pub id: u64,
    /// In bytes.
    pub size: u64,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// 1, 2, 3.
    pub level: u64,
}

/// A block device (`info.DiskInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its name, e.g. `vda`.
    pub name: String,
    /// Its major number.
    pub major: u64,
    /// Its minor number.
    pub minor: u64,
    /// In bytes.
    pub size: u64,
    /// Its I/O scheduler, e.g. `none`.
    pub scheduler: String,
}

/// A network interface of the host (`info.NetInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Its name.
    pub name: String,
    /// Its address.
    pub mac_address: String,
    /// In Mbit/s.
    pub speed: i64,
    /// The largest packet, in bytes.
    pub mtu: i64,
}

/// The versions that `cadvisor_version_info` shows (`info.VersionInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemVersion {
    /// The release of the kernel.
    pub kernel: String,
    /// `PRETTY_NAME` of `/etc/os-release`; `Unknown` without it.
    pub os: String,
}
