//! A node against the API server in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
mod engine;
mod lease;
mod recorded;
