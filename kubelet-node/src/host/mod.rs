//! What a kubelet changes on its host when it starts, and keeps in order while it runs. Feature `host`.
//!
//! | type                 | what it does                                                            | setting                          |
//! |----------------------|-------------------------------------------------------------------------|----------------------------------|
//! | [`KernelSettings`]   | checks or sets the kernel's settings on which the kubelet relies         | `protectKernelDefaults`          |
//! | [`UtilChains`]       | keeps the iptables chains that other components rely on                  | `makeIPTablesUtilChains`         |
//! | [`ProcessCgroups`]   | keeps the agent, and the processes of the system, in a cgroup            | `kubeletCgroups`, `systemCgroups` |
//!
//! Each takes the folder or the program that it works with, so that it can be tested without root.

mod cgroup;
mod iptables;
mod kernel;
mod processes;
mod util_chains;

pub use cgroup::Cgroup;
pub use iptables::Iptables;
pub use kernel::{KernelSetting, KernelSettings};
pub use processes::ProcessCgroups;
pub use util_chains::UtilChains;
