//! Usage of the node, its pods, containers and volumes: the types of `stats/v1alpha1`, and the traits of what reports it.
//!
//! The types are those of `/stats/summary`, and are equal to the kubelet's as JSON. A field that is `None` was not measured.
//! Bytes, nanoseconds and counts are whole numbers; the docs of each field name the unit.

mod accelerator;
mod compute;
mod file_system;
mod network;
mod provider;
mod psi;
mod runtime_usages;
mod summary;
mod user_defined;

pub use accelerator::AcceleratorStats;
pub use compute::{CpuStats, IoStats, MemoryStats, ProcessStats, RlimitStats, SwapStats};
pub use file_system::{FsStats, PvcReference, RuntimeStats, VolumeHealthStats, VolumeStats};
pub use network::{InterfaceStats, NetworkStats};
pub use provider::{MetricPieces, StatsProvider, SummaryProvider};
pub use psi::{PsiData, PsiStats};
pub use runtime_usages::{
    RuntimeContainer, RuntimeContainerUsage, RuntimeCpu, RuntimeFileSystem, RuntimeFileSystems, RuntimeIo,
    RuntimeList, RuntimeMemory, RuntimeMetric, RuntimeMetricDescriptor, RuntimeNetwork, RuntimePodUsage,
    RuntimeSandbox, RuntimeSwap, RuntimeUsages, StatsPods,
};
pub use summary::{
    ContainerStats, NodeStats, PodReference, PodStats, SYSTEM_CONTAINER_KUBELET, SYSTEM_CONTAINER_MISC,
    SYSTEM_CONTAINER_PODS, SYSTEM_CONTAINER_RUNTIME, Summary,
};
pub use user_defined::UserDefinedMetric;
