//! The engines of the core together, on a runtime and a status sink in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod admission;
mod allocation;
mod cgroups;
mod deadlines;
mod explain;
mod kubelet;
mod metrics;
mod restarts;
mod rig;
mod stats;
