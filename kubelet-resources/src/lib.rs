//! The container manager of a kubelet: CPUs, memory, NUMA topology, devices, claims and cgroups.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod active;
pub mod checkpoint;
pub mod cpu;
mod cpu_set;
mod decision;
mod error;
mod go_values;
mod machine;
mod manager;
pub mod memory;
mod metrics;
mod numa_set;
mod requests;
pub mod topology;

pub use cpu_set::{CpuSet, CpuSetError};
pub use decision::{Allocator, ResourcesConfig, ResourcesState};
pub use error::{BoxError, Error, Result};
pub use machine::{Core, HugePages, Machine, NumaNode};
pub use manager::{
    ContainerUpdates, DEFAULT_RECONCILE_PERIOD, KubeletPods, NodePods, Placement, ResourceManager,
    ResourceManagerBuilder, ResourceManagerHandle,
};
pub use numa_set::NumaSet;
pub use requests::Gates;
