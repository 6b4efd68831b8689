//! The node's API, against recordings of the kubelet and hostile clients.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

#[cfg(all(feature = "console", feature = "streaming"))]
mod chromium;
#[cfg(all(feature = "console", feature = "streaming"))]
mod console;
mod https;
mod logs;
#[cfg(feature = "pods-api")]
mod pods_proto_generated;
mod recorded;
#[cfg(feature = "streaming")]
mod streams;
mod users;
