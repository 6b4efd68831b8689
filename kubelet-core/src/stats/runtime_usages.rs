//! What the runtime reports about the usage of its pods, containers and file systems: the trait and its plain types.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::PsiStats;
use crate::{PodUid, Result};

/// The container runtime, as far as usage is measured with its help (the part of `internalapi.RuntimeService` and
/// `ImageManagerService` that the kubelet's `criStatsProvider` calls).
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait RuntimeUsages: Send + Sync {
    /// All sandboxes and containers, in any state and order (`ListPodSandbox`, `ListContainers`).
    ///
    /// # Errors
    ///
    /// Those of the calls.
    async fn list(&self) -> Result<RuntimeList>;

    /// The usage of each container (`ListContainerStats`).
    ///
    /// # Errors
    ///
    /// Those of the call.
    async fn container_usages(&self) -> Result<Vec<RuntimeContainerUsage>>;

    /// The usage of each pod (`ListPodSandboxStats`). `None` if the runtime does not implement it.
    ///
    /// # Errors
    ///
    /// Those of the call.
    async fn pod_usages(&self) -> Result<Option<Vec<RuntimePodUsage>>>;

    /// The file systems of images and containers (`ImageFsInfo`).
    ///
    /// # Errors
    ///
    /// Those of the call.
    async fn file_systems(&self) -> Result<RuntimeFileSystems>;

    /// The names of the images of these sandboxes and containers, by the id of the sandbox or container, such as
    /// `docker.io/library/busybox:1.36`: the lists may have ids of images. What is unknown is missing. By default, all are.
    async fn image_names(
        &self,
        sandboxes: &[String],
        containers: &[RuntimeContainer],
    ) -> BTreeMap<String, String> {
        let _ = (sandboxes, containers);
        BTreeMap::new()
    }

    /// The metrics that the runtime can report (`ListMetricDescriptors`). By default, none.
    ///
    /// # Errors
    ///
    /// Those of the call.
    async fn metric_descriptors(&self) -> Result<Vec<RuntimeMetricDescriptor>> {
        Ok(Vec::new())
    }

    /// The metrics of all pods and containers (`ListPodSandboxMetrics`). By default, none.
    ///
    /// # Errors
    ///
    /// Those of the call.
    async fn metrics(&self) -> Result<Vec<RuntimeMetric>> {
        Ok(Vec::new())
    }
}

/// The sandboxes and containers of a runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeList {
    /// The sandboxes.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// The containers.
    pub containers: Vec<RuntimeContainer>,
}

/// A sandbox.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeSandbox {
    /// Its id in the runtime.
    pub id: String,
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// The UID of its pod.
    pub uid: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// It is ready.
    pub ready: bool,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeContainer {
    /// Its id in the runtime.
    pub id: String,
    /// The id of its sandbox.
    pub sandbox_id: String,
    /// Its name in the pod.
    pub name: String,
    /// Its image, as the runtime names it.
    pub image: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// It runs.
    pub running: bool,
}

/// The usage of a container, as its runtime reports it (CRI's `ContainerStats`). A part is `None` if it is not reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeContainerUsage {
    /// The id of the container.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// CPU time.
    pub cpu: Option<RuntimeCpu>,
    /// Memory.
    pub memory: Option<RuntimeMemory>,
    /// Swap.
    pub swap: Option<RuntimeSwap>,
    /// Stalls for I/O.
    pub io: Option<RuntimeIo>,
    /// Its writable layer.
    pub writable_layer: Option<RuntimeFileSystem>,
}

/// The usage of a pod, as its runtime reports it (CRI's `PodSandboxStats`). A part is `None` if it is not reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimePodUsage {
    /// The id of the sandbox.
    pub sandbox_id: String,
    /// CPU time.
    pub cpu: Option<RuntimeCpu>,
    /// Memory.
    pub memory: Option<RuntimeMemory>,
    /// Stalls for I/O.
    pub io: Option<RuntimeIo>,
    /// The network; `None` for a pod on the host's network.
    pub network: Option<RuntimeNetwork>,
    /// The number of processes.
    pub processes: Option<u64>,
    /// Its containers.
    pub containers: Vec<RuntimeContainerUsage>,
}

/// CPU time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeCpu {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// Core-nanoseconds since the start.
    pub usage_core_nano_seconds: Option<u64>,
    /// Nanocores.
    pub usage_nano_cores: Option<u64>,
    /// Stalls.
    pub psi: Option<PsiStats>,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeMemory {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// The working set.
    pub working_set: Option<u64>,
    /// The limit minus the working set.
    pub available: Option<u64>,
    /// All memory in use.
    pub usage: Option<u64>,
    /// Anonymous memory.
    pub rss: Option<u64>,
    /// The number of page faults.
    pub page_faults: Option<u64>,
    /// The number of major page faults.
    pub major_page_faults: Option<u64>,
    /// Stalls.
    pub psi: Option<PsiStats>,
}

/// Swap, in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeSwap {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// The limit minus the usage.
    pub available: Option<u64>,
    /// The usage.
    pub usage: Option<u64>,
}

/// Stalls for I/O.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeIo {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// Stalls.
    pub psi: Option<PsiStats>,
}

/// The network of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeNetwork {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// The default interface.
    pub default_interface: super::InterfaceStats,
    /// All interfaces.
    pub interfaces: Vec<super::InterfaceStats>,
}

/// A part of a file system: images, or a writable layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeFileSystem {
    /// When it was measured.
    pub timestamp: Timestamp,
    /// A folder in that file system. Empty if the runtime does not report it.
    pub mountpoint: String,
    /// The used bytes.
    pub used_bytes: Option<u64>,
    /// The used inodes.
    pub inodes_used: Option<u64>,
}

/// The file systems of a runtime; often the same. The first of each counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeFileSystems {
    /// Of images.
    pub images: Vec<RuntimeFileSystem>,
    /// Of the containers' writable layers. Old runtimes do not report it.
    pub containers: Vec<RuntimeFileSystem>,
}

/// A metric that the runtime can report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeMetricDescriptor {
    /// Its name.
    pub name: String,
    /// Its help text.
    pub help: String,
    /// The names of its labels.
    pub label_keys: Vec<String>,
}

/// A value of a metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeMetric {
    /// Its name.
    pub name: String,
    /// When it was measured; `None`: now.
    pub timestamp: Option<Timestamp>,
    /// It is a counter. Otherwise it is a gauge.
    pub is_counter: bool,
    /// The values of its labels, in the order of the descriptor.
    pub label_values: Vec<String>,
    /// The value.
    pub value: u64,
}

/// The pods of the node, as far as the usage is attributed to them.
pub trait StatsPods: Send + Sync {
    /// The pod with this UID (`GetPodByUID`).
    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>>;

    /// All pods (`GetPods`). By default, none is known.
    fn pods(&self) -> Vec<Arc<Pod>> {
        Vec::new()
    }
}

impl StatsPods for crate::PodManager {
    fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        Self::pod(self, uid)
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        Self::pods(self)
    }
}
