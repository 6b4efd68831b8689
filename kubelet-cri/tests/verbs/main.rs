//! The adapter over a runtime that does as it is told.
// What the tests share is not itself a test to clippy.
#![allow(clippy::unwrap_used, clippy::panic)]

mod adapter;
mod disk_usage;
mod puppet;
