//! The integration tests of `kubelet-volume`, as one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[cfg(feature = "csi")]
mod csi;
mod in_tree;
mod manager;
mod measured;
mod plugins;
mod recorded;
