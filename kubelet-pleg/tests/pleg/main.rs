//! The PLEG on a runtime in memory, and against recordings of the kubelet.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod chaos;
mod evented;
mod fake;
mod generic;
mod metrics;
mod rebuilt_lists;
mod recorded;
