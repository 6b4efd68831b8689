//! Where readings come from: small traits, so that each source can be replaced.
//!
//! [`Cgroups`], [`Processes`] and [`MachineSource`] read pseudo files of the kernel, which do not block; the collector
//! calls them on another thread. [`FileSystems`] may meet a mount that hangs, so it is asynchronous and bounded in time.

mod traits;

pub use traits::{CgroupUsage, Cgroups, FileSystems, MachineSource, Processes};
