//! Tests of the protocol, the client, the server, the five verbs, and the process runtime.
// Clippy does not count the shared code of tests as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(target_os = "linux")]
mod process;
mod proto_generated;
mod socket;
mod verbs;
