//! `NodeVolumes`, with plugins in memory.

mod claims;
mod fake;
mod lives;
mod restarts;
mod updates;
