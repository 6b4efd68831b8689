//! The types of the verbs: the spec of a container to start, and the state of a container.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;

use super::pod::PodKey;

/// Identifies a container: the pod's UID, the container's name in the pod, and the attempt.
///
/// A restart is a new container with the next attempt. `Display` prints it for humans.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerKey {
    /// The pod's UID.
    pub pod: PodUid,
    /// The container's name in the pod's spec.
    pub container: String,
    /// From 0; the restart count when it was created.
    pub attempt: u32,
}

impl ContainerKey {
    /// The key of this attempt.
    pub fn new(pod: impl Into<PodUid>, container: impl Into<String>, attempt: u32) -> Self {
        Self {
            pod: pod.into(),
            container: container.into(),
            attempt,
        }
    }
}

impl fmt::Display for ContainerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "container {:?} (attempt {}) of pod {}",
            self.container, self.attempt, self.pod
        )
    }
}

/// The spec of a container to start: the parts of CRI's `ContainerConfig` and `PodSandboxConfig` that a runtime without
/// sandboxes needs. References to variables in command, args and env are already expanded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContainerSpec {
    /// The key of the container. Start is idempotent by this key.
    pub key: ContainerKey,
    /// Its pod.
    pub pod: PodInfo,
    /// The attempt of its pod, for a runtime that begins [`Pods`](super::Pods).
    pub pod_attempt: u32,
    /// The image, as the pod's spec names it.
    pub image: String,
    /// Replaces the image's entry point, unless empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments, unless empty.
    pub args: Vec<String>,
    /// The environment, in order; a later variable of the same name wins.
    pub env: Vec<EnvVar>,
    /// The working folder; `None`: the image's.
    pub working_dir: Option<PathBuf>,
    /// Files and folders of the host to mount.
    pub mounts: Vec<Mount>,
    /// The log file, an absolute path, in the format of CRI logs; `None`: the output is discarded.
    pub log_path: Option<PathBuf>,
    /// The stop signal, such as `SIGUSR1`; `None`: the default of the image or the runtime.
    pub stop_signal: Option<String>,
    /// Whether its standard input stays open for an attach.
    pub stdin: bool,
    /// Whether its standard input ends when the first attached client has left.
    pub stdin_once: bool,
    /// Whether it gets a terminal.
    pub tty: bool,
    /// The numeric user, if the pod or the image sets one.
    pub run_as_user: Option<i64>,
    /// The numeric group, if the pod sets one.
    pub run_as_group: Option<i64>,
    /// Whether it must not write outside of its mounts (`readOnlyRootFilesystem`).
    pub read_only_root: bool,
    /// Its limits.
    pub limits: Limits,
    /// The kubelet's labels of the container.
    pub labels: BTreeMap<String, String>,
    /// The kubelet's annotations of the container, e.g. `io.kubernetes.container.terminationMessagePath`.
    pub annotations: BTreeMap<String, String>,
}

impl ContainerSpec {
    /// A spec with only the key and the image. Set the other fields that you need.
    pub fn new(key: ContainerKey, image: impl Into<String>) -> Self {
        Self {
            key,
            pod: PodInfo::default(),
            pod_attempt: 0,
            image: image.into(),
            command: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            working_dir: None,
            mounts: Vec::new(),
            log_path: None,
            stop_signal: None,
            stdin: false,
            stdin_once: false,
            tty: false,
            run_as_user: None,
            run_as_group: None,
            read_only_root: false,
            limits: Limits::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// The key of its pod.
    pub fn pod_key(&self) -> PodKey {
        PodKey::new(self.key.pod.clone(), self.pod_attempt)
    }
}

/// The pod of a container, without its UID.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PodInfo {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its host name; empty on the host's network.
    pub hostname: String,
    /// Its labels, with the kubelet's.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value, usually UTF-8.
    pub value: Vec<u8>,
}

/// A file or folder of the host to mount into a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The path on the host.
    pub host_path: PathBuf,
    /// The path in the container.
    pub container_path: PathBuf,
    /// Whether the container must not write to it.
    pub read_only: bool,
}

impl Mount {
    /// A writable mount.
    pub fn new(host_path: impl Into<PathBuf>, container_path: impl Into<PathBuf>) -> Self {
        Self {
            host_path: host_path.into(),
            container_path: container_path.into(),
            read_only: false,
        }
    }
}

/// The limits of a container or a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// CPU in millicores.
    pub cpu_millis: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// A container that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// Its key.
    pub key: ContainerKey,
    /// Its state.
    pub state: ContainerState,
    /// Extra information from the runtime; `crictl inspect` shows it.
    pub info: BTreeMap<String, String>,
}

/// The state of a started container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It is running.
    Running {
        /// When it was started.
        started_at: Timestamp,
    },
    /// It has ended.
    Exited(Exit),
}

impl ContainerState {
    /// When the container was started.
    pub fn started_at(&self) -> Timestamp {
        match self {
            Self::Running { started_at } => *started_at,
            Self::Exited(exit) => exit.started_at,
        }
    }
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// Its exit code; 128+n if signal n ended it, as in a shell.
    pub code: i32,
    /// The reason in one word. [`Container::exited`] sets containerd's: `Completed` or `Error`.
    pub reason: String,
    /// A message for humans; may be empty.
    pub message: String,
}

impl Container {
    /// A container that has been running since `started_at`.
    pub fn running(key: ContainerKey, started_at: Timestamp) -> Self {
        Self {
            key,
            state: ContainerState::Running { started_at },
            info: BTreeMap::new(),
        }
    }

    /// Records that it ended; does nothing if it had already ended.
    pub fn exited(&mut self, code: i32, finished_at: Timestamp) {
        if let ContainerState::Running { started_at } = self.state {
            self.state = ContainerState::Exited(Exit {
                started_at,
                finished_at,
                code,
                reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
                message: String::new(),
            });
        }
    }

    /// Whether it is running.
    pub fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    /// How it ended; `None` while it runs.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            ContainerState::Running { .. } => None,
            ContainerState::Exited(exit) => Some(exit),
        }
    }
}
