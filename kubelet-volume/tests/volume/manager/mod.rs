//! `NodeVolumes`, with plugins in memory.

mod fake;
mod lives;
