//! Certificates from the first to the last, against an API server in memory and in virtual time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where it cannot go on"
)]

mod bootstrap;
mod connections;
mod hostile;
mod rig;
mod rotation;
mod serving;
