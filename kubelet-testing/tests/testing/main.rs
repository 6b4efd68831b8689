//! Tests of the fakes, comparisons with the real ones, and whole agents with the fakes. One program, because linking
//! takes longer than most of the tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test"
)]

mod agent;
mod agent_restarts;
mod conformance_catches;
#[cfg(target_os = "linux")]
mod conformance_containerd;
mod conformance_memory;
mod conformance_memory_cri;
#[cfg(target_os = "linux")]
mod conformance_process;
mod memory_cri;
mod memory_cri_as_containerd;
mod memory_runtime;
mod mirror_pods;
mod outside_client;
mod probes;
mod recorded_lives;
mod resize;
mod runtime_manager;
mod simulation;
mod simulation_catches;
