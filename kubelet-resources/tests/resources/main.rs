//! Tests of the managers through the public API.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod cgroups;
mod checkpoints;
mod configuration;
mod device_manager;
mod devices;
mod dra;
mod dra_proto_generated;
mod invariants;
mod manager;
mod plugin_admission;
mod pod_level;
mod pod_resources;
mod pods;
mod product_merge;
mod proto_generated;
mod recorded;
mod sysfs;
mod systemd;
