//! What is started, and what is told of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;

/// Which container: the pod's UID, the container's name in the pod, and how many of it were started before.
///
/// The restart of a container is a new container with the next attempt. Printed for humans.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContainerKey {
    /// The pod's UID.
    pub pod: PodUid,
    /// The container's name in the pod's spec.
    pub container: String,
    /// From 0; the restart count at the time it was made.
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

/// What to start: the parts of CRI's `ContainerConfig` and `PodSandboxConfig` that mean something to a runtime
/// without sandboxes. Variables in command, args and env are expanded already.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContainerSpec {
    /// Which container. Starting is idempotent by it.
    pub key: ContainerKey,
    /// The pod it belongs to.
    pub pod: PodInfo,
    /// The image, as the pod's spec names it.
    pub image: String,
    /// Replaces the image's entry point, unless empty.
    pub command: Vec<String>,
    /// Replaces the image's arguments, unless empty.
    pub args: Vec<String>,
    /// The environment, in order; a later variable of the same name wins.
    pub env: Vec<EnvVar>,
    /// Where to start it; `None`: where the image says.
    pub working_dir: Option<PathBuf>,
    /// Files and folders of the host it wants to see.
    pub mounts: Vec<Mount>,
    /// The file for its output, absolute, in the format of CRI logs; `None`: the output is not kept.
    pub log_path: Option<PathBuf>,
    /// The signal that asks it to end, such as `SIGUSR1`; `None`: the image's or the runtime's own.
    pub stop_signal: Option<String>,
    /// Its standard input stays open for an attach.
    pub stdin: bool,
    /// It wants a terminal.
    pub tty: bool,
    /// The numeric user it must run as, if the pod or the image asks for one.
    pub run_as_user: Option<i64>,
    /// The numeric group it must run as, if the pod asks for one.
    pub run_as_group: Option<i64>,
    /// What it may use.
    pub limits: Limits,
    /// The kubelet's labels of the container.
    pub labels: BTreeMap<String, String>,
    /// The kubelet's annotations of the container, e.g. `io.kubernetes.container.terminationMessagePath`.
    pub annotations: BTreeMap<String, String>,
}

impl ContainerSpec {
    /// A container of which nothing but the key and the image is said. Set the fields it needs.
    pub fn new(key: ContainerKey, image: impl Into<String>) -> Self {
        Self {
            key,
            pod: PodInfo::default(),
            image: image.into(),
            command: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            working_dir: None,
            mounts: Vec::new(),
            log_path: None,
            stop_signal: None,
            stdin: false,
            tty: false,
            run_as_user: None,
            run_as_group: None,
            limits: Limits::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// The pod of a container, beside its UID.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PodInfo {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its host name; empty on the host's network.
    pub hostname: String,
    /// Its labels, and the kubelet's.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value: most often, but not always, UTF-8.
    pub value: Vec<u8>,
}

/// A file or folder of the host that a container wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where the container looks for it.
    pub container_path: PathBuf,
    /// The container must not write to it.
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

/// What a container may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// CPU in thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// A container that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// Which one.
    pub key: ContainerKey,
    /// How it is.
    pub state: ContainerState,
    /// Whatever the runtime likes to tell of it; shown by `crictl inspect`.
    pub info: BTreeMap<String, String>,
}

/// How a container is that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It runs.
    Running {
        /// Since when.
        started_at: Timestamp,
    },
    /// It has ended.
    Exited(Exit),
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// Its exit code; 128+n if signal n ended it, as a shell tells it.
    pub code: i32,
    /// One word; [`Container::exited`] says what containerd would: `Completed` or `Error`.
    pub reason: String,
    /// A sentence for humans, or nothing.
    pub message: String,
}

impl Container {
    /// A container that runs since `started_at`.
    pub fn running(key: ContainerKey, started_at: Timestamp) -> Self {
        Self {
            key,
            state: ContainerState::Running { started_at },
            info: BTreeMap::new(),
        }
    }

    /// Records that it ended; does nothing if it had ended before.
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

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            ContainerState::Running { .. } => None,
            ContainerState::Exited(exit) => Some(exit),
        }
    }
}
