//! The whole agent on processes of this machine, from manifests to JSON lines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "../standalone/mod.rs"]
mod standalone;

mod end;
mod manifests;
mod restart;
mod run_once;
mod samples;
