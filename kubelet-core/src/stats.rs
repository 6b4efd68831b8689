//! Usage of the node, its pods and containers, as the node's server reports it.

use async_trait::async_trait;

use crate::runtime::streaming::StreamError;

/// What the node's server answers to requests for usage (`stats.SummaryProvider`, and the collectors behind
/// `/metrics/cadvisor` and `/metrics/resource`).
///
/// # Cancel safety
///
/// Each call may be dropped at any time.
#[async_trait]
pub trait StatsProvider: Send + Sync {
    /// `/stats/summary`: the summary, as JSON.
    ///
    /// # Errors
    ///
    /// If something cannot be measured. The client receives the message.
    async fn summary(&self, only_cpu_and_memory: bool) -> Result<Vec<u8>, StreamError>;

    /// `/metrics/cadvisor`, as Prometheus text.
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    async fn cadvisor_metrics(&self) -> Result<Vec<u8>, StreamError>;

    /// `/metrics/resource`, as Prometheus text.
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    async fn resource_metrics(&self) -> Result<Vec<u8>, StreamError>;
}
