//! The traits of what reports the usage: as text for the server, as a [`Summary`] for the parts of the agent.

use async_trait::async_trait;

use super::Summary;
use crate::runtime::streaming::StreamError;

/// A text in pieces. Each is written when it is taken.
pub type MetricPieces = Box<dyn Iterator<Item = Vec<u8>> + Send>;

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

    /// `/metrics/cadvisor`, as Prometheus text in pieces. The text of a full node has megabytes: no part of the agent holds it
    /// as a whole.
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    async fn cadvisor_metrics(&self) -> Result<MetricPieces, StreamError>;

    /// `/metrics/resource`, as Prometheus text.
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    async fn resource_metrics(&self) -> Result<Vec<u8>, StreamError>;

    /// `kubelet_volume_stats_*`, which `/metrics` shows beside the metrics of the agent itself, as Prometheus text sorted by
    /// name. By default, there are none.
    async fn volume_metrics(&self) -> Vec<u8> {
        Vec::new()
    }
}

/// Measures the usage of the node and its pods, for the parts of the agent that decide by it, such as eviction
/// (`stats.SummaryProvider`).
///
/// # Cancel safety
///
/// The call may be dropped at any time.
#[async_trait]
pub trait SummaryProvider: Send + Sync {
    /// The usage now (`Get`). With `update`, the usage of the node and of all pods together is measured anew, and does
    /// not come from a cache (`updateStats`).
    ///
    /// # Errors
    ///
    /// If something cannot be measured.
    async fn get(&self, update: bool) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>>;

    /// As [`get`](Self::get), but without pods, which cost the most: `pods` may be `None`. By default, everything.
    ///
    /// # Errors
    ///
    /// If something cannot be measured.
    async fn node(&self, update: bool) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>> {
        self.get(update).await
    }

    /// As [`get`](Self::get), but only CPU, memory and swap (`GetCPUAndMemoryStats`). By default, everything.
    ///
    /// # Errors
    ///
    /// If something cannot be measured.
    async fn cpu_and_memory(&self) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>> {
        self.get(false).await
    }
}
