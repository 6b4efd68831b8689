//! The cgroups of pods, of QoS classes and of the node's reservations (`pkg/kubelet/cm`).
//!
//! | part                   | does                                                                                        |
//! |------------------------|---------------------------------------------------------------------------------------------|
//! | [`PodCgroups`]         | creates, limits and removes the cgroups, with the driver cgroupfs or systemd, cgroup v1 or v2 |
//! | [`CgroupMounts`]       | where the hierarchies are mounted                                                            |
//! | [`Reserved`]           | the limits of `systemReserved` and `kubeReserved`                                            |
//!
//! The driver systemd needs the feature `systemd`. It creates and changes slices over D-Bus, and writes to their files what
//! systemd has no property for.

mod builder;
mod driver;
mod limits;
mod mounts;
mod node_allocatable;
mod pods;
mod qos;
#[cfg(feature = "systemd")]
mod systemd;
mod tree;

pub use self::builder::PodCgroupsBuilder;
pub use self::mounts::CgroupMounts;
pub use self::node_allocatable::{Reserved, ReservedFor};
pub use self::pods::PodCgroups;
pub use self::qos::{MemoryQos, QosReserved};
