//! The summary: the node, its system containers, pods and containers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    AcceleratorStats, CpuStats, FsStats, IoStats, MemoryStats, NetworkStats, ProcessStats, RlimitStats,
    RuntimeStats, SwapStats, UserDefinedMetric, VolumeStats,
};

/// The name of the system container of the agent (`SystemContainerKubelet`).
pub const SYSTEM_CONTAINER_KUBELET: &str = "kubelet";
/// The name of the system container of the container runtime (`SystemContainerRuntime`).
pub const SYSTEM_CONTAINER_RUNTIME: &str = "runtime";
/// The name of the system container of other processes (`SystemContainerMisc`).
pub const SYSTEM_CONTAINER_MISC: &str = "misc";
/// The name of the system container of all pods (`SystemContainerPods`).
pub const SYSTEM_CONTAINER_PODS: &str = "pods";

/// The usage of the node and its pods (`Summary`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The node.
    pub node: NodeStats,
    /// Its pods. `null` in JSON, if `None`.
    pub pods: Option<Vec<PodStats>>,
}

/// The usage of the node (`NodeStats`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStats {
    /// The name of the node.
    pub node_name: String,
    /// Daemons of the system, and all pods together; see [`SYSTEM_CONTAINER_PODS`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<ContainerStats>,
    /// When the measuring started.
    pub start_time: Option<Time>,
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuStats>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// I/O.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStats>,
    /// The network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStats>,
    /// The file system of the node's root folder: volumes, logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<FsStats>,
    /// The file systems of the container runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeStats>,
    /// Process ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit: Option<RlimitStats>,
    /// Swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapStats>,
}

/// The usage of a pod (`PodStats`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStats {
    /// The pod.
    pub pod_ref: PodReference,
    /// When the measuring started.
    pub start_time: Option<Time>,
    /// Its containers. `null` in JSON, if `None`.
    pub containers: Option<Vec<ContainerStats>>,
    /// The CPU of its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuStats>,
    /// The memory of its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// The I/O of its cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStats>,
    /// Its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkStats>,
    /// Its volumes.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volume_stats: Vec<VolumeStats>,
    /// What its containers and `emptyDir` volumes use together.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<FsStats>,
    /// Its processes.
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessStats>,
    /// Its swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapStats>,
}

/// The usage of a container, or of a system container (`ContainerStats`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStats {
    /// The name of the container.
    pub name: String,
    /// When the measuring started.
    pub start_time: Option<Time>,
    /// CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuStats>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStats>,
    /// I/O.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<IoStats>,
    /// Its accelerators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<AcceleratorStats>,
    /// Its writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<FsStats>,
    /// Its logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<FsStats>,
    /// Metrics that it defines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub user_defined_metrics: Vec<UserDefinedMetric>,
    /// Swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<SwapStats>,
}

/// A pod (`PodReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodReference {
    /// The name.
    pub name: String,
    /// The namespace.
    pub namespace: String,
    /// The UID.
    pub uid: String,
}

impl Summary {
    /// The system container with this name, e.g. [`SYSTEM_CONTAINER_PODS`] (`getSysContainer`).
    pub fn system_container(&self, name: &str) -> Option<&ContainerStats> {
        let mut containers = self.node.system_containers.iter();
        containers.find(|container| container.name == name)
    }
}
