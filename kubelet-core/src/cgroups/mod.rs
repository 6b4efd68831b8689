//! The names and limits of pods' cgroups: pure functions of pods, for whoever creates the cgroups and whoever resizes pods
//! (`pkg/kubelet/cm`).

mod driver;
mod exclusive_cpus;
mod limits;
mod name;
mod shares;

pub use driver::CgroupDriver;
pub use exclusive_cpus::{ExclusiveCpus, NoExclusiveCpus};
pub use limits::{CgroupLimits, PodCgroupSettings, UNLIMITED, huge_page_size};
pub(crate) use limits::{binary, decimal_milli};
pub use name::CgroupName;
pub use shares::{SHARES, milli_cpu_to_quota, milli_cpu_to_shares, shares_to_milli_cpu};
