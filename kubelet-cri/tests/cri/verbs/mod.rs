//! The adapter over a scripted runtime.

pub(crate) mod adapter;
mod disk_usage;
mod pods;
mod puppet;
