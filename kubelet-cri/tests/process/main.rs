//! The process runtime behind the CRI adapter, with real processes.
#![cfg(target_os = "linux")]
// What the tests share is not itself a test to clippy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agent;
mod end;
mod life_cycle;
mod node;
mod output;
mod restart;
mod served;
mod usage;
