//! What the resources of a container, e.g. exclusive CPUs and devices, add to its config.

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};

/// Allocates resources of the node to containers, e.g. CPUs, memory, devices and claims (what the kubelet's `ContainerManager` does
/// when a container starts). [`NoContainerResources`] allocates none.
#[async_trait]
pub trait ContainerResources: Send + Sync {
    /// What is added to the config of the container (`GetResources`, `PreCreateContainer`). Called before each start of it.
    ///
    /// # Errors
    ///
    /// The message: the container waits with `CreateContainerConfigError` and is tried again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn additions(&self, pod: &Pod, container: &Container) -> Result<ContainerAdditions, String>;

    /// The container was created and is about to start (`PreStartContainer`).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn container_starts(&self, pod: &Pod, container: &str);
}

/// What is added to the config of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerAdditions {
    /// `cpuset_cpus`: the CPUs that it may use. Empty: any.
    pub cpus: String,
    /// `cpuset_mems`: the NUMA nodes that it may use. Empty: any.
    pub memory_nodes: String,
    /// It has CPUs of its own, and gets no CPU quota.
    pub exclusive_cpus: bool,
    /// Environment variables: names and values.
    pub envs: Vec<(String, String)>,
    /// Files and folders of the host.
    pub mounts: Vec<AddedMount>,
    /// Devices of the host.
    pub devices: Vec<AddedDevice>,
    /// Annotations for the runtime.
    pub annotations: BTreeMap<String, String>,
    /// The full names of devices of the Container Device Interface.
    pub cdi_devices: Vec<String>,
}

/// A file or folder of the host in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedMount {
    /// The path in the container.
    pub container_path: String,
    /// The path on the host.
    pub host_path: String,
    /// The container cannot write to it.
    pub read_only: bool,
}

/// A device of the host in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddedDevice {
    /// The path in the container.
    pub container_path: String,
    /// The path on the host.
    pub host_path: String,
    /// Some of `r` (read), `w` (write), `m` (make the file).
    pub permissions: String,
}

/// Adds nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoContainerResources;

#[async_trait]
impl ContainerResources for NoContainerResources {
    async fn additions(&self, _: &Pod, _: &Container) -> Result<ContainerAdditions, String> {
        Ok(ContainerAdditions::default())
    }

    async fn container_starts(&self, _: &Pod, _: &str) {}
}
