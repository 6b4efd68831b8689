//! The crate as its users see it.
// Clippy does not count the shared code of tests as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod pods_proto_generated;
