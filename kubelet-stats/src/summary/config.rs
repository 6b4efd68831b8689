//! What a summary shows.

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_core::RootDir;
use kubelet_core::VolumeUsages;
use kubelet_core::stats::{RuntimeUsages, StatsPods};

/// What a [`NodeSummary`](super::NodeSummary) shows, and from where.
#[derive(Clone)]
pub struct SummaryConfig {
    /// The name of the node.
    pub node_name: String,
    /// The agent's root folder: its file system is the node's.
    pub root_dir: RootDir,
    /// The folder of the logs of pods (`podLogsDir`).
    pub pod_logs_dir: PathBuf,
    /// The cgroup of all pods, e.g. `/kubepods`. `None` without cgroups for pods.
    pub pods_cgroup: Option<String>,
    /// The cgroup of the agent (`kubeletCgroups`; if that is empty, [`own_cgroup`](crate::source::own_cgroup)).
    pub kubelet_cgroup: Option<String>,
    /// The cgroup of the runtime (`--runtime-cgroups`).
    pub runtime_cgroup: Option<String>,
    /// The cgroup of other daemons (`systemCgroups`).
    pub system_cgroup: Option<String>,
    /// Show stalls (gate `KubeletPSI`).
    pub psi: bool,
    /// Take all numbers of pods from the runtime (gate `PodAndContainerStatsFromCRI`). A runtime without
    /// `ListPodSandboxStats` is read as if this were off.
    pub pod_and_container_stats_from_cri: bool,
    /// The runtime. Without it, containers are found by their cgroups.
    pub runtime: Option<Arc<dyn RuntimeUsages>>,
    /// The volumes of pods.
    pub volumes: Option<Arc<dyn VolumeUsages>>,
    /// The pods of the node: which of their volumes are local.
    pub pods: Option<Arc<dyn StatsPods>>,
}

impl SummaryConfig {
    /// The defaults of the kubelet, without runtime, volumes and pods.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            node_name: node_name.into(),
            root_dir: RootDir::default(),
            pod_logs_dir: PathBuf::from("/var/log/pods"),
            pods_cgroup: Some("/kubepods".to_owned()),
            kubelet_cgroup: None,
            runtime_cgroup: None,
            system_cgroup: None,
            psi: true,
            pod_and_container_stats_from_cri: false,
            runtime: None,
            volumes: None,
            pods: None,
        }
    }
}
