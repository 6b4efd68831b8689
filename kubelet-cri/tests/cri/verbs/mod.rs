//! The adapter over a scripted runtime.

mod adapter;
mod disk_usage;
mod pods;
mod puppet;
