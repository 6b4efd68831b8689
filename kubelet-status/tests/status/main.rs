//! Statuses, sinks and events, by tables, recordings, and an API server in memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod api_server_faults;
mod api_server_sink;
mod events;
mod kubectl;
mod logged;
mod manager;
mod metrics;
mod odd_rules;
mod recorded_pods;
mod recorded_statuses;
mod sinks;
