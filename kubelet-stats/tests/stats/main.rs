//! Readings, summaries and metrics, from recorded trees and from fakes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod metrics;
mod recorded;
