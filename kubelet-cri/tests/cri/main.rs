//! The protocol and its two ends, the five verbs, and the process runtime.
// What the tests share is not itself a test to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(target_os = "linux")]
mod process;
mod proto_generated;
mod socket;
mod verbs;
