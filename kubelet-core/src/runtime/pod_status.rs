//! A pod's full status from its runtime.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::pod::{ContainerState, SandboxState};
use crate::{ContainerId, PodKey, PodUid};

/// How often a container was restarted.
pub type RestartCount = u32;

/// The runtime's full status of a pod (`container.PodStatus`). The API's `PodStatus` is generated from it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodStatus {
    /// The pod's UID.
    pub uid: PodUid,
    /// The pod's namespace and name.
    pub key: PodKey,
    /// All IPs of the pod, the primary first. Empty if no sandbox is ready, and on the host's network.
    pub ips: Vec<String>,
    /// All containers, including dead ones, newest first.
    pub containers: Vec<ContainerStatus>,
    /// All sandboxes, newest first.
    pub sandboxes: Vec<SandboxStatus>,
    /// When it was read, on tokio's clock: taken **before** the runtime was asked, so the status is at least this new.
    pub timestamp: Instant,
}

impl PodStatus {
    /// The status of a pod without sandboxes and containers.
    pub fn empty(uid: PodUid, key: PodKey, timestamp: Instant) -> Self {
        Self {
            uid,
            key,
            ips: Vec::new(),
            containers: Vec::new(),
            sandboxes: Vec::new(),
            timestamp,
        }
    }

    /// The newest container of this name (`FindContainerStatusByName`).
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|status| status.name == name)
    }

    /// The running containers (`GetRunningContainerStatuses`).
    pub fn running_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.containers
            .iter()
            .filter(|status| status.state == ContainerState::Running)
    }

    /// Whether a container runs or a sandbox is ready.
    pub fn is_running(&self) -> bool {
        self.running_containers().next().is_some()
            || self
                .sandboxes
                .iter()
                .any(|sandbox| sandbox.state == SandboxState::Ready)
    }

    /// The containers of the newest sandbox, if it is ready (`ActiveContainerStatuses`).
    pub fn active_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let sandbox = self
            .sandboxes
            .first()
            .filter(|sandbox| sandbox.state == SandboxState::Ready);
        self.containers
            .iter()
            .filter(move |container| sandbox.is_some_and(|sandbox| container.sandbox_id == sandbox.id))
    }
}

/// A container's full status (`container.Status`).
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerStatus {
    /// Its id.
    pub id: ContainerId,
    /// Its name in the pod's spec.
    pub name: String,
    /// Its state.
    pub state: ContainerState,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it exited.
    pub finished_at: Option<Timestamp>,
    /// Its exit code, after it exited.
    pub exit_code: i32,
    /// The image it was asked to run, `NAME:TAG`.
    pub image: String,
    /// The id of that image.
    pub image_id: String,
    /// The digested reference of that image: `imageID` in the API.
    pub image_ref: String,
    /// The runtime handler that pulled the image, if one did.
    pub image_runtime_handler: String,
    /// The kubelet's hash of the container's spec, from its annotations; 0 where unknown.
    pub hash: u64,
    /// How often it was restarted, from its annotations.
    pub restart_count: RestartCount,
    /// The id of the sandbox it belongs to.
    pub sandbox_id: String,
    /// The reason of its state: `Completed`, `Error`, `OOMKilled`…
    pub reason: String,
    /// The termination message, or the runtime's message.
    pub message: String,
    /// The CPU and memory that the runtime applies, if it reports them.
    pub resources: Option<AppliedResources>,
    /// The user of its first process, if the runtime reports it.
    pub user: Option<ContainerUser>,
    /// Its volume mounts, if the runtime reports them.
    pub mounts: Vec<VolumeMountStatus>,
    /// Its stop signal, e.g. `SIGTERM`, if the runtime reports it.
    pub stop_signal: Option<String>,
}

impl ContainerStatus {
    /// A container with only id, name and state set.
    pub fn new(id: ContainerId, name: impl Into<String>, state: ContainerState) -> Self {
        Self {
            id,
            name: name.into(),
            state,
            created_at: None,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            image: String::new(),
            image_id: String::new(),
            image_ref: String::new(),
            image_runtime_handler: String::new(),
            hash: 0,
            restart_count: 0,
            sandbox_id: String::new(),
            reason: String::new(),
            message: String::new(),
            resources: None,
            user: None,
            mounts: Vec::new(),
            stop_signal: None,
        }
    }
}

/// A sandbox's full status: the fields of CRI's `PodSandboxStatus` that the kubelet reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: SandboxState,
    /// How many sandboxes the pod had before this one.
    pub attempt: u32,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Its IPs, the primary first; none on the host's network.
    pub ips: Vec<String>,
    /// Whether the runtime reports network status at all. Only then does an empty list of IPs mean that the sandbox
    /// lost its network.
    pub network_reported: bool,
    /// Whether it shares the host's network.
    pub host_network: bool,
    /// Its runtime handler; empty for the default.
    pub runtime_handler: String,
}

impl SandboxStatus {
    /// The first sandbox of a pod, with only id and state set.
    pub fn new(id: impl Into<String>, state: SandboxState) -> Self {
        Self {
            id: id.into(),
            state,
            attempt: 0,
            created_at: None,
            ips: Vec::new(),
            network_reported: false,
            host_network: false,
            runtime_handler: String::new(),
        }
    }
}

/// CPU and memory that the runtime applies (`container.ContainerResources`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppliedResources {
    /// The CPU request.
    pub cpu_request: Option<Quantity>,
    /// The CPU limit.
    pub cpu_limit: Option<Quantity>,
    /// The memory request.
    pub memory_request: Option<Quantity>,
    /// The memory limit.
    pub memory_limit: Option<Quantity>,
}

/// The user of a container's first process (`container.ContainerUser`, Linux).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUser {
    /// Its user.
    pub uid: i64,
    /// Its primary group.
    pub gid: i64,
    /// Its supplementary groups.
    pub supplemental_groups: Vec<i64>,
}

/// A mount that a runtime reports (`container.Mount`, the part that statuses show).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeMountStatus {
    /// The path in the container.
    pub container_path: String,
    /// The path on the host.
    pub host_path: String,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Whether mounts below it are read-only, too.
    pub recursive_read_only: bool,
}
