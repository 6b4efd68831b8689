//! The stats of a node: against a recording of the kubelet, and by hand-made trees.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

mod at_rest;
mod cgroups_v2;
mod cri_mode;
mod measured;
mod metrics;
mod odd_cases;
mod on_this_host;
mod recorded;
mod recorded_v1;
mod recorded_v2;
mod storage;
mod tree;
