//! What was read of the machine and its cgroups: plain data, as cAdvisor's `info/v1`.
//!
//! A [`Snapshot`] is immutable. It holds the machine and one [`Reading`] for each cgroup.

mod cpu;
mod disk_io;
mod file_system;
mod machine;
mod memory;
mod network;
mod processes;
mod snapshot;
mod spec;
mod usage;

pub use cpu::{Cfs, CpuUsage, Schedstat};
pub use disk_io::{DeviceIo, DiskIo};
pub use file_system::{FileSystem, FileSystemKind, IoCounters};
pub use machine::{Cache, Core, Disk, HugePages, Machine, NetworkDevice, NumaNode, SystemVersion};
pub use memory::{HugetlbUsage, MemoryUsage};
pub use network::{Interface, NetworkUsage, TcpConnections, UdpSockets};
pub use processes::{ProcessUsage, Ulimit};
pub use snapshot::{Reading, Snapshot};
pub use spec::{ContainerRecord, CpuSpec, MemorySpec, PodRef, Spec};
pub use usage::Usage;
