//! The watcher with fake plugins on real sockets.
// Clippy does not count the shared code of tests as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fake;
mod odd_sockets;
mod proto_generated;
mod registration;
