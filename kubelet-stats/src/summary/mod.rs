//! The summary: what `/stats/summary` shows, and what eviction decides by.

mod alone;
mod cgroup;
mod config;
mod cpu_rates;
mod matching;
mod node;
mod pods;
mod runtime;
mod storage;
mod strict;
mod usages;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::SummaryProvider;
use kubelet_core::stats::{NodeStats, PodStats, RuntimeStats, Summary};

pub use self::config::SummaryConfig;
use self::cpu_rates::CpuRates;
use self::usages::Usages;
use crate::collector::{Collector, DEFAULT_AGE};
use crate::error::Result;
use crate::reading::{FileSystem, Reading, Snapshot};
use crate::source::Detail;

/// Measures the node and its pods (`stats.summaryProviderImpl` with `criStatsProvider`). Cheap to clone.
///
/// Most numbers come from cgroups. The runtime lists the pods and containers, and reports their writable layers; what no
/// cgroup shows comes from the runtime, too. Without a runtime, each container's cgroup that is found counts as a container.
#[derive(Clone)]
pub struct NodeSummary {
    inner: Arc<Inner>,
}

struct Inner {
    collector: Collector,
    config: SummaryConfig,
    started: Timestamp,
    /// When the machine was started (`GetBootTime`).
    booted: Option<Timestamp>,
    cpu_rates: CpuRates,
    usages: Usages,
}

impl NodeSummary {
    /// A summary of what `collector` reads.
    pub fn new(collector: Collector, config: SummaryConfig) -> Self {
        let started = collector.config().clock.now();
        let booted = collector
            .config()
            .processes
            .uptime()
            .and_then(|uptime| started.checked_sub(uptime).ok());
        Self {
            inner: Arc::new(Inner {
                collector,
                config,
                started,
                booted,
                cpu_rates: CpuRates::default(),
                usages: Usages::default(),
            }),
        }
    }

    /// Everything (`Get`). With `update`, the node, all pods together, and what the runtime reports of containers are read anew,
    /// and the rates of containers that only the runtime reports are computed. Other readings are at most 15 s old.
    ///
    /// # Errors
    ///
    /// If the node, its root file system, or the runtime cannot be read. What is missing of a single pod is left out.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn summary(&self, update: bool) -> Result<Summary> {
        let snapshot = self.snapshot().await?;
        let root_fs = self.root_file_system().await?;
        let node = self.whole_node(Some(&snapshot), &root_fs, update).await?;
        let pods = self.pods(&snapshot, &root_fs, update).await?;
        Ok(Summary {
            node,
            pods: Some(pods),
        })
    }

    /// As [`summary`](Self::summary), without pods: neither the runtime nor the files of pods are asked about them.
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn node_summary(&self, update: bool) -> Result<Summary> {
        // The rates of all cgroups go on, although only few of them are shown.
        self.inner.collector.keep_rates(DEFAULT_AGE).await?;
        let root_fs = self.root_file_system().await?;
        let node = self.whole_node(None, &root_fs, update).await?;
        Ok(Summary { node, pods: None })
    }

    async fn whole_node(
        &self,
        snapshot: Option<&Snapshot>,
        root_fs: &FileSystem,
        update: bool,
    ) -> Result<NodeStats> {
        let age = if update { Duration::ZERO } else { DEFAULT_AGE };
        let root = self.root(age).await?;
        let root_fs_stats = node::root_fs_stats(root_fs, &root);
        let (image_fs, container_fs) = self.runtime_file_systems().await?;
        let mut node = self.node_stats(&root);
        node.fs = Some(root_fs_stats);
        node.runtime = (image_fs.is_some() || container_fs.is_some()).then_some(RuntimeStats {
            image_fs,
            container_fs,
        });
        node.rlimit = Some(self.rlimit().await);
        node.system_containers = self.system_containers(snapshot, age, false).await;
        Ok(node)
    }

    /// CPU, memory and swap (`GetCPUAndMemoryStats`). The runtime lists its containers. It measures them only if the cgroup of one
    /// of them, or of its pod, does not show everything.
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn cpu_and_memory_summary(&self) -> Result<Summary> {
        self.cpu_and_memory_within(DEFAULT_AGE).await
    }

    /// As [`cpu_and_memory_summary`](Self::cpu_and_memory_summary), of readings that are at most so old. `Duration::ZERO`: they begin
    /// after this call.
    pub(crate) async fn cpu_and_memory_within(&self, max_age: Duration) -> Result<Summary> {
        let collector = &self.inner.collector;
        let snapshot = collector.snapshot_with(Detail::Summary, max_age).await?;
        // It is in this snapshot, or in a younger one.
        let root = self.root(DEFAULT_AGE).await?;
        let node = self.node_cpu_and_memory(&root);
        let pods = self.pods_cpu_and_memory(&snapshot).await?;
        let system_containers = self.system_containers(Some(&snapshot), DEFAULT_AGE, true).await;
        let node = NodeStats {
            system_containers,
            ..node
        };
        Ok(Summary {
            node,
            pods: Some(pods),
        })
    }

    /// The usage of all pods (`ListPodStats`).
    ///
    /// # Errors
    ///
    /// As for [`summary`](Self::summary).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn pod_stats(&self) -> Result<Vec<PodStats>> {
        let snapshot = self.snapshot().await?;
        let root_fs = self.root_file_system().await?;
        self.pods(&snapshot, &root_fs, false).await
    }

    /// The readings that a summary shows.
    async fn snapshot(&self) -> Result<Arc<Snapshot>> {
        let collector = &self.inner.collector;
        collector.snapshot_with(Detail::Summary, DEFAULT_AGE).await
    }

    async fn root(&self, age: Duration) -> Result<Arc<Reading>> {
        let collector = &self.inner.collector;
        collector.cgroup_with(Detail::Summary, "/", age).await
    }

    /// The collector whose readings it shows.
    pub fn collector(&self) -> &Collector {
        &self.inner.collector
    }

    /// What it shows.
    pub fn config(&self) -> &SummaryConfig {
        &self.inner.config
    }
}

#[async_trait]
impl SummaryProvider for NodeSummary {
    async fn get(&self, update: bool) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.summary(update).await?)
    }

    async fn node(&self, update: bool) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.node_summary(update).await?)
    }

    async fn cpu_and_memory(&self) -> Result<Summary, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.cpu_and_memory_summary().await?)
    }
}

/// A time of the summary.
fn time(timestamp: Timestamp) -> Option<Time> {
    Some(Time(timestamp))
}
