//! A pod's full status as its runtime tells it.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::pod::{ContainerState, SandboxState};
use crate::{ContainerId, PodKey, PodUid};

/// How often a container was started again.
pub type RestartCount = u32;

/// All that the runtime knows of a pod (`container.PodStatus`). Not to be confused with the API's
/// `PodStatus`, which is made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PodStatus {
    /// The pod's UID.
    pub uid: PodUid,
    /// The pod's namespace and name.
    pub key: PodKey,
    /// All IPs of the pod, the primary first; none while no sandbox is ready and on the host's network.
    pub ips: Vec<String>,
    /// All containers, dead ones too, newest first.
    pub containers: Vec<ContainerStatus>,
    /// All sandboxes, newest first.
    pub sandboxes: Vec<SandboxStatus>,
    /// When it was read, on tokio's clock: taken **before** the runtime was asked, so that the status is at
    /// least as new as this.
    pub timestamp: Instant,
}

impl PodStatus {
    /// The status of a pod of which the runtime has nothing.
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

    /// The containers that run (`GetRunningContainerStatuses`).
    pub fn running_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.containers
            .iter()
            .filter(|status| status.state == ContainerState::Running)
    }

    /// Whether some container runs, or some sandbox is ready.
    pub fn is_running(&self) -> bool {
        self.running_containers().next().is_some()
            || self
                .sandboxes
                .iter()
                .any(|sandbox| sandbox.state == SandboxState::Ready)
    }

    /// The containers of the newest sandbox, if that is ready (`ActiveContainerStatuses`).
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
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What it ended with, once it has.
    pub exit_code: i32,
    /// The image it was asked to run, `NAME:TAG`.
    pub image: String,
    /// The id of that image.
    pub image_id: String,
    /// The digested reference of that image: what the API shows as `imageID`.
    pub image_ref: String,
    /// The runtime handler that pulled the image, if one did.
    pub image_runtime_handler: String,
    /// The kubelet's hash of the container's spec, from its annotations; 0 where unknown.
    pub hash: u64,
    /// How often it was started again before, from its annotations.
    pub restart_count: RestartCount,
    /// The id of the sandbox it belongs to.
    pub sandbox_id: String,
    /// One word on why it is in this state: `Completed`, `Error`, `OOMKilled`…
    pub reason: String,
    /// The termination message, or what the runtime has to say.
    pub message: String,
    /// What the runtime applies of CPU and memory, if it tells.
    pub resources: Option<ContainerResources>,
    /// Who its first process runs as, if the runtime tells.
    pub user: Option<ContainerUser>,
    /// Its volume mounts, if the runtime tells.
    pub mounts: Vec<VolumeMountStatus>,
    /// The signal that stops it, e.g. `SIGTERM`, if the runtime tells.
    pub stop_signal: Option<String>,
}

impl ContainerStatus {
    /// A container of which only id, name and state are known.
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

/// A sandbox's full status: of CRI's `PodSandboxStatus` what the kubelet reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: SandboxState,
    /// How many sandboxes the pod had before it.
    pub attempt: u32,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Its IPs, the primary first; none on the host's network.
    pub ips: Vec<String>,
    /// Whether the runtime tells of its network at all: only then does no IP mean that it lost it.
    pub network_reported: bool,
    /// Whether it shares the host's network.
    pub host_network: bool,
    /// The runtime handler it runs under; empty for the default.
    pub runtime_handler: String,
}

impl SandboxStatus {
    /// The first sandbox of a pod, of which only id and state are known.
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

/// CPU and memory as the runtime applies them (`container.ContainerResources`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerResources {
    /// CPU requested.
    pub cpu_request: Option<Quantity>,
    /// CPU at most.
    pub cpu_limit: Option<Quantity>,
    /// Memory requested.
    pub memory_request: Option<Quantity>,
    /// Memory at most.
    pub memory_limit: Option<Quantity>,
}

/// Who a container's first process runs as (`container.ContainerUser`, Linux).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUser {
    /// Its user.
    pub uid: i64,
    /// Its primary group.
    pub gid: i64,
    /// Its further groups.
    pub supplemental_groups: Vec<i64>,
}

/// A mount that a runtime reports (`container.Mount` as far as statuses show it).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeMountStatus {
    /// The path in the container.
    pub container_path: String,
    /// The path on the host.
    pub host_path: String,
    /// Not writable.
    pub read_only: bool,
    /// Not writable, and what is mounted below neither.
    pub recursive_read_only: bool,
}
