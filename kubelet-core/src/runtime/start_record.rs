//! Records of container starts, written before the start.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::{ContainerId, Result};

/// A container that is about to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStart {
    /// Its name in the pod's spec.
    pub name: String,
    /// Its id: it was created, and has not run yet.
    pub id: ContainerId,
    /// How often a container of its name was started before.
    pub attempt: u32,
}

/// Called by a runtime before it starts a container, so that a container that must run only once is not started twice,
/// even if the agent, the runtime or the host fails.
#[async_trait]
pub trait StartRecord: Send + Sync {
    /// The container is about to be started. After `Ok` this is recorded durably: if the runtime loses the container,
    /// it counts as started and lost.
    ///
    /// # Errors
    ///
    /// The start cannot be recorded: the container must not be started now.
    ///
    /// # Cancel safety
    ///
    /// May be dropped. The container must not be started then, and may count as started.
    async fn about_to_start(&self, pod: &Pod, start: &ContainerStart) -> Result<()>;

    /// The container of this name is about to be removed because it is to start again, with all containers of its pod
    /// (`RestartAllContainers`). After `Ok` its earlier starts do not count: it is not lost when the runtime no longer has it.
    ///
    /// # Errors
    ///
    /// The record cannot be changed: the container must not be removed now.
    ///
    /// # Cancel safety
    ///
    /// May be dropped. The container must not be removed then.
    async fn about_to_start_over(&self, pod: &Pod, container: &str) -> Result<()>;
}
