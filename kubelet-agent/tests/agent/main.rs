//! Whole agents, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[cfg(feature = "apiserver")]
mod cluster;
mod counted;
#[cfg(feature = "plugins")]
mod device_health;
#[cfg(feature = "plugins")]
mod devices;
#[cfg(feature = "apiserver")]
mod exclusive_cpus;
mod handle;
#[cfg(feature = "plugins")]
mod held_resources;
mod log;
mod log_links;
mod node_events;
#[cfg(feature = "api")]
mod own_api_server;
mod problems;
