//! The room of stats: the usage of the node, its pods, containers and volumes.
//!
//! The node's API reports it, and eviction decides by it.

use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::stats::RuntimeUsages;
use kubelet_core::{Error, KubeletHandle, StatsProvider, SummaryProvider};
use kubelet_kuberuntime::{CgroupDriver, FsStats, ImageFsStats};
use kubelet_stats::{Collector, CollectorConfig, Endpoints, NodeSummary, SummaryConfig};

use super::machine::HostMachine;
use super::runtime::RuntimeRoom;
use crate::context::Context;

/// What replaces the measuring of this crate.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) provider: Option<Arc<dyn StatsProvider>>,
    pub(crate) summaries: Option<Arc<dyn SummaryProvider>>,
}

/// What measures usage.
#[derive(Clone, Default)]
pub(crate) struct StatsRoom {
    /// For `/stats/summary` and the metrics of the node's API.
    pub(crate) provider: Option<Arc<dyn StatsProvider>>,
    /// For eviction.
    pub(crate) summaries: Option<Arc<dyn SummaryProvider>>,
    /// For image garbage collection. `None`: the runtime manager reads the file system itself.
    pub(crate) image_fs: Option<Arc<dyn ImageFsStats>>,
}

/// What is uses.
pub(crate) struct Uses<'a> {
    pub(crate) machine: HostMachine,
    pub(crate) kubelet: &'a KubeletHandle,
    pub(crate) runtime: &'a RuntimeRoom,
    /// The volume manager, if it is the one of `kubelet-volume`.
    pub(crate) volumes: Option<&'a Arc<kubelet_volume::NodeVolumesHandle>>,
}

impl StatsRoom {
    /// Builds what measures the agent. It runs no task: it reads when somebody asks.
    pub(crate) fn open(context: &Context, parts: Parts, uses: Uses<'_>) -> Self {
        let mut room = Self {
            provider: parts.provider,
            summaries: parts.summaries,
            image_fs: None,
        };
        if room.provider.is_none() || room.summaries.is_none() {
            match of_this_host(context, uses) {
                Ok(summary) => {
                    room.image_fs = Some(Arc::new(ImageFs(summary.clone())));
                    room.summaries.get_or_insert_with(|| Arc::new(summary.clone()));
                    room.provider
                        .get_or_insert_with(|| Arc::new(endpoints(context, summary)));
                }
                Err(error) => tracing::error!(%error, "usage is not measured"),
            }
        }
        room
    }
}

/// What the node's API shows.
fn endpoints(context: &Context, summary: NodeSummary) -> Endpoints {
    let endpoints = Endpoints::new(summary);
    // The API server in this process keeps what it reads. It computes the first rates from two readings that are a second apart.
    match context.serves_kubectl {
        true => endpoints.resource_max_age(std::time::Duration::ZERO),
        false => endpoints,
    }
}

/// Measures this host and the pods of the agent.
fn of_this_host(context: &Context, uses: Uses<'_>) -> kubelet_stats::Result<NodeSummary> {
    let (config, gates) = (&context.settings.configuration, &context.settings.feature_gates);
    let manager = uses.runtime.manager.clone();
    // A runtime without cgroups for pods has its containers elsewhere.
    let pods_cgroup = uses.runtime.cgroups.as_ref().and_then(|_| {
        let driver =
            CgroupDriver::configured(config.cgroups_per_qos, &config.cgroup_driver, &config.cgroup_root);
        driver.pods_cgroup()
    });
    let set = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let kubelet_cgroup = set(&config.kubelet_cgroups)
        .or_else(|| kubelet_stats::source::own_cgroup(std::path::Path::new("/proc")));
    let runtime_cgroup = context.settings.flags.get("runtime-cgroups").and_then(set);
    let system_cgroup = set(&config.system_cgroups);
    let pods = Arc::new(uses.kubelet.pods().clone());
    let runtime = manager.map(|manager| manager as Arc<dyn RuntimeUsages>);
    let roots = [&pods_cgroup, &kubelet_cgroup, &runtime_cgroup, &system_cgroup];
    let collector = Collector::new(CollectorConfig {
        runtime: runtime.clone(),
        pods: Some(pods.clone()),
        machine: Arc::new(uses.machine),
        clock: context.clock,
        disk: context.disk,
        ..CollectorConfig::host(roots.into_iter().flatten())?
    });
    let summary = SummaryConfig {
        root_dir: context.root_dir.clone(),
        pod_logs_dir: config.pod_logs_dir.clone().into(),
        pods_cgroup,
        kubelet_cgroup,
        runtime_cgroup,
        system_cgroup,
        psi: gates.enabled("KubeletPSI"),
        pod_and_container_stats_from_cri: gates.enabled("PodAndContainerStatsFromCRI"),
        runtime,
        pods: Some(pods),
        volumes: uses.volumes.cloned().map(|volumes| volumes as _),
        ..SummaryConfig::new(&*context.node_name)
    };
    Ok(NodeSummary::new(collector, summary))
}

/// The file system of images as the summary reports it, so that images are collected by the same numbers as pods are evicted.
struct ImageFs(NodeSummary);

#[async_trait]
impl ImageFsStats for ImageFs {
    async fn image_fs_stats(&self) -> kubelet_core::Result<FsStats> {
        let stats = self.0.image_fs_stats().await.map_err(|error| match error {
            kubelet_stats::Error::Runtime(error) => error,
            error => Error::runtime("ImageFsInfo", error),
        })?;
        // An unknown file system has a capacity of 0, which the collection reports (`InvalidDiskCapacity`).
        let stats = stats.unwrap_or_default();
        Ok(FsStats {
            capacity: stats.capacity_bytes.unwrap_or(0),
            available: stats.available_bytes.unwrap_or(0),
        })
    }
}
