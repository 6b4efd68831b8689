//! The stats of a node: against a recording of the kubelet, and by hand-made trees.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod metrics;
mod recorded;
mod recorded_v1;
mod tree;
