//! The node's server, from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[cfg(feature = "streaming")]
mod streams;
