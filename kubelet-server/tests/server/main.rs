//! The node's API, against recordings of the kubelet and hostile clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod chromium;
mod console;
mod https;
mod limits;
mod logs;
#[cfg(feature = "pods-api")]
mod pods_proto_generated;
mod recorded;
mod streams;
mod users;
