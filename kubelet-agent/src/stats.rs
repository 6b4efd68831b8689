//! The room of stats: the usage of the node, its pods, containers and volumes.
//!
//! The node's API reports it, and eviction decides by it.

use std::sync::Arc;

#[cfg(feature = "stats")]
use kubelet_core::stats::RuntimeUsages;
use kubelet_core::{KubeletHandle, StatsProvider, SummaryProvider};
#[cfg(feature = "stats")]
use kubelet_kuberuntime::CgroupDriver;
use kubelet_kuberuntime::ImageFsStats;
#[cfg(feature = "stats")]
use kubelet_stats::{Collector, CollectorConfig, Endpoints, NodeSummary, SummaryConfig};

use crate::context::Context;
#[cfg(feature = "stats")]
use crate::image_fs::ImageFs;
use crate::machine::HostMachine;
use crate::runtime::RuntimeRoom;

/// What replaces the measuring of this crate.
#[derive(Clone, Default)]
pub(crate) struct StatsParts {
    pub(crate) provider: Option<Arc<dyn StatsProvider>>,
    pub(crate) summaries: Option<Arc<dyn SummaryProvider>>,
}

/// What measures usage.
#[derive(Clone, Default)]
#[allow(dead_code, reason = "each room uses what it needs, and rooms have features")]
pub(crate) struct StatsRoom {
    /// For `/stats/summary` and the metrics of the node's API.
    pub(crate) provider: Option<Arc<dyn StatsProvider>>,
    /// For eviction.
    pub(crate) summaries: Option<Arc<dyn SummaryProvider>>,
    /// For image garbage collection. `None`: the runtime manager reads the file system itself.
    pub(crate) image_fs: Option<Arc<dyn ImageFsStats>>,
}

/// What is measured.
#[allow(dead_code, reason = "only the feature `stats` measures")]
pub(crate) struct Measured<'a> {
    pub(crate) machine: HostMachine,
    pub(crate) kubelet: &'a KubeletHandle,
    pub(crate) runtime: &'a RuntimeRoom,
    #[cfg(feature = "volumes")]
    pub(crate) volumes: &'a Option<Arc<kubelet_volume::NodeVolumesHandle>>,
}

impl StatsRoom {
    /// Builds what measures the agent. It runs no task: it reads when somebody asks.
    pub(crate) fn new(context: &Context, measured: Measured<'_>, parts: StatsParts) -> Self {
        #[cfg_attr(not(feature = "stats"), allow(unused_mut))]
        let mut room = Self {
            provider: parts.provider,
            summaries: parts.summaries,
            image_fs: None,
        };
        #[cfg(feature = "stats")]
        if room.provider.is_none() || room.summaries.is_none() {
            match of_this_host(context, measured) {
                Ok(summary) => {
                    room.image_fs = Some(Arc::new(ImageFs(summary.clone())));
                    room.summaries.get_or_insert_with(|| Arc::new(summary.clone()));
                    room.provider
                        .get_or_insert_with(|| Arc::new(endpoints(context, summary)));
                }
                Err(error) => tracing::error!(%error, "usage is not measured"),
            }
        }
        #[cfg(not(feature = "stats"))]
        let _ = (context, measured);
        room
    }
}

/// What the node's API shows.
#[cfg(feature = "stats")]
fn endpoints(context: &Context, summary: NodeSummary) -> Endpoints {
    let endpoints = Endpoints::new(summary);
    // The API server in this process keeps what it reads. It computes the first rates from two readings that are a second apart.
    #[cfg(feature = "api")]
    if context.serves_kubectl {
        return endpoints.resource_max_age(std::time::Duration::ZERO);
    }
    let _ = context;
    endpoints
}

/// Measures this host and the pods of the agent.
#[cfg(feature = "stats")]
fn of_this_host(context: &Context, measured: Measured<'_>) -> kubelet_stats::Result<NodeSummary> {
    let (config, gates) = (&context.settings.configuration, &context.settings.feature_gates);
    let manager = measured.runtime.manager.clone();
    // A runtime without cgroups for pods has its containers elsewhere.
    let pods_cgroup = measured.runtime.cgroups.as_ref().and_then(|_| {
        let driver =
            CgroupDriver::configured(config.cgroups_per_qos, &config.cgroup_driver, &config.cgroup_root);
        driver.pods_cgroup()
    });
    let set = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let kubelet_cgroup = set(&config.kubelet_cgroups)
        .or_else(|| kubelet_stats::source::own_cgroup(std::path::Path::new("/proc")));
    let runtime_cgroup = context.settings.flags.get("runtime-cgroups").and_then(set);
    let system_cgroup = set(&config.system_cgroups);
    let pods = Arc::new(measured.kubelet.pods().clone());
    let runtime = manager.map(|manager| manager as Arc<dyn RuntimeUsages>);
    let roots = [&pods_cgroup, &kubelet_cgroup, &runtime_cgroup, &system_cgroup];
    let collector = Collector::new(CollectorConfig {
        runtime: runtime.clone(),
        pods: Some(pods.clone()),
        machine: Arc::new(measured.machine),
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
        #[cfg(feature = "volumes")]
        volumes: measured.volumes.clone().map(|volumes| volumes as _),
        ..SummaryConfig::new(&*context.node_name)
    };
    Ok(NodeSummary::new(collector, summary))
}
