//! The generic runtime manager, on recordings of the kubelet and on a runtime in memory.

// What the tests share is not itself a test to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cgroups;
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
