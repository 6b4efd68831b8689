//! Tests of the generic runtime manager, with recordings of the kubelet and with a runtime in memory.

// Clippy does not count the shared code of tests as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod claims;
mod cluster_objects;
mod env_files;
mod fake;
mod garbage;
mod http_hooks;
mod image_gc;
mod image_volumes;
mod killing;
mod life_cycle;
mod logs;
mod long_lists;
mod pod_actions;
mod pod_resize;
mod pods;
mod probes;
mod resize;
mod rig;
mod volume_leases;
