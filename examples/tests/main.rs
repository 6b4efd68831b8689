//! Runs the examples as programs: with processes of this machine, with a real containerd, and with an API server in
//! memory.
//!
//! `cargo test --workspace` builds the examples before it runs these tests. Before `cargo test -p end-to-end` alone, build
//! them: `cargo build --workspace --examples --bins --all-features`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod api;
mod configurations;
mod containerd;
mod fifty_agents;
mod hollow_nodes;
mod node_agent;
mod pleg;
mod processes;
mod program;
mod readme;
mod run_pod;
mod standalone;
mod validate_config;
mod variables;
