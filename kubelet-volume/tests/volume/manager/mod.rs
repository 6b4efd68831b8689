//! `NodeVolumes`, with plugins in memory.

mod blocks;
mod claims;
pub(crate) mod fake;
mod lives;
mod restarts;
mod selinux;
mod updates;
