//! The node against an API server in memory: its registration, status, lease and certificates.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod certificates;
mod host;
mod metrics;
mod node;
mod shutdown;
