//! Whole agents, in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[cfg(feature = "apiserver")]
mod cluster;
mod counted;
#[cfg(all(feature = "apiserver", feature = "resources"))]
mod devices;
#[cfg(all(feature = "apiserver", feature = "resources"))]
mod exclusive_cpus;
mod handle;
mod node_events;
#[cfg(feature = "api")]
mod own_api_server;
mod problems;
