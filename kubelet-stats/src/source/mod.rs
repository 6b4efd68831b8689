//! Where readings come from: small traits, so that each source can be replaced, and their implementations for Linux.
//!
//! [`Cgroups`], [`Processes`] and [`MachineSource`] read pseudo files of the kernel, which do not block; the collector
//! calls them on another thread. [`FileSystems`] may meet a mount that hangs, so it is asynchronous and bounded in time.
//!
//! Every implementation reads files below a root of the caller's choice, so that a recorded tree is as good as a host.

mod cgroups;
mod file_systems;
mod machine;
mod proc;
mod pseudo_file;
mod traits;

pub use cgroups::{CgroupsV1, CgroupsV2, Round, boot_time, host_cgroups, own_cgroup};
pub use file_systems::{HostFileSystems, HostStatFs, StatFs, StatFsResult};
pub use machine::HostMachine;
pub use proc::ProcFs;
pub use traits::{
    CgroupFiles, CgroupUsage, Cgroups, Detail, FileSystems, FileUsage, Listed, MachineSource, Processes,
    Wanted,
};
