//! The adapter over a runtime that does as it is told.

mod adapter;
mod disk_usage;
mod puppet;
