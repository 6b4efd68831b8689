//! Whole agents, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[cfg(feature = "apiserver")]
mod cluster;
mod counted;
#[cfg(feature = "dra")]
mod device_health;
#[cfg(all(feature = "apiserver", feature = "resources"))]
mod devices;
#[cfg(all(feature = "apiserver", feature = "resources"))]
mod exclusive_cpus;
mod handle;
#[cfg(feature = "resources")]
mod held_resources;
mod log_links;
mod node_events;
#[cfg(feature = "api")]
mod own_api_server;
mod problems;
