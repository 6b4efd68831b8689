//! Logs of containers: read, followed, rotated.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod following;
mod reading;
mod rotating;
mod runtime;
