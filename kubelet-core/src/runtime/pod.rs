//! A pod as a runtime lists it.

use k8s_openapi::jiff::Timestamp;

use crate::{ContainerId, PodKey, PodUid};

/// A pod as the runtime lists it: enough to detect changes (`container.Pod`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimePod {
    /// Its UID.
    pub uid: PodUid,
    // The fields that change most come first: comparisons then end sooner.
    /// Its containers.
    pub containers: Vec<Container>,
    /// Its sandboxes, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Its namespace and name.
    pub key: PodKey,
    /// When its first sandbox was created.
    pub created_at: Option<Timestamp>,
}

impl RuntimePod {
    /// A pod without sandboxes and containers.
    pub fn empty(uid: PodUid, key: PodKey) -> Self {
        Self {
            uid,
            key,
            created_at: None,
            containers: Vec::new(),
            sandboxes: Vec::new(),
        }
    }

    /// Whether it has neither a container nor a sandbox.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.sandboxes.is_empty()
    }

    /// Whether a container runs or a sandbox is ready.
    pub fn is_running(&self) -> bool {
        self.containers
            .iter()
            .any(|container| container.state == ContainerState::Running)
            || self
                .sandboxes
                .iter()
                .any(|sandbox| sandbox.state == SandboxState::Ready)
    }
}

/// A container as the runtime lists it (`container.Container`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: ContainerId,
    // Before fields that cost more to compare.
    /// Its state.
    pub state: ContainerState,
    /// Its name in the pod's spec.
    pub name: String,
    /// The image it was asked to run, `NAME:TAG`.
    pub image: String,
    /// The id of that image.
    pub image_id: String,
    /// The digested reference of that image.
    pub image_ref: String,
    /// The runtime handler that pulled the image, if one did.
    pub image_runtime_handler: String,
    /// The kubelet's hash of the container's spec; 0 where unknown.
    pub hash: u64,
    /// The id of the sandbox it belongs to.
    pub sandbox_id: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
}

impl Container {
    /// A container with only id, name and state set.
    pub fn new(id: ContainerId, name: impl Into<String>, state: ContainerState) -> Self {
        Self {
            id,
            name: name.into(),
            image: String::new(),
            image_id: String::new(),
            image_ref: String::new(),
            image_runtime_handler: String::new(),
            hash: 0,
            state,
            sandbox_id: String::new(),
            created_at: None,
        }
    }
}

/// A sandbox as the runtime lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: ContainerId,
    /// Its state.
    pub state: SandboxState,
    /// How many sandboxes the pod had before this one.
    pub attempt: u32,
    /// When it was created.
    pub created_at: Option<Timestamp>,
}

impl Sandbox {
    /// The first sandbox of a pod, with only id and state set.
    pub fn new(id: ContainerId, state: SandboxState) -> Self {
        Self {
            id,
            state,
            attempt: 0,
            created_at: None,
        }
    }
}

/// A container's state (`container.State`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Created, not started.
    Created,
    /// Running.
    Running,
    /// Exited.
    Exited,
    /// Unknown to the runtime.
    Unknown,
}

/// A sandbox's state (CRI `PodSandboxState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxState {
    /// Its network is up and its namespaces exist.
    Ready,
    /// It has stopped, or was never complete.
    NotReady,
}
