//! A node against the API server in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

mod addresses;
mod engine;
mod lease;
mod log;
mod patching;
mod preflight;
mod recorded;
mod rig;
mod setters;
