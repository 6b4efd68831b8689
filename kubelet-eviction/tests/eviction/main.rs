//! The decision against recorded runs of the kubelet, and the engines around it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod admission;
mod configuration;
mod decisions;
mod manager;
mod node;
#[cfg(target_os = "linux")]
mod on_this_host;
mod oom;
mod recorded;
mod usage_watch;
