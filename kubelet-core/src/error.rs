//! The error of this crate, and of every trait that it defines.

use std::sync::Arc;
use std::time::Duration;

use crate::{PodKey, PodUid};

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// What can go wrong between the parts of a kubelet.
///
/// Cheap to clone: one failed inspection of a pod is told to all who wait for it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the container runtime failed.
    #[error("runtime: {call}{}: {source}", about(.pod))]
    Runtime {
        /// What was asked of the runtime, e.g. `ListContainers`.
        call: &'static str,
        /// The pod it was about, if it was about one.
        pod: Option<PodUid>,
        /// What the runtime said.
        source: Source,
    },

    /// The runtime is down or says that it is not ready; nothing is synced until it is.
    #[error("{message}")]
    RuntimeNotReady {
        /// What is the matter.
        message: String,
    },

    /// The runtime cannot do this at all. The kubelet answers 501 or emits an event for it.
    #[error("the runtime does not offer {what}")]
    Unsupported {
        /// The capability asked for, e.g. `exec`.
        what: &'static str,
    },

    /// No answer within the deadline.
    #[error("{what}{}: no answer within {after:?}", about(.pod))]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// The pod it was about, if it was about one.
        pod: Option<PodUid>,
        /// The deadline that passed.
        after: Duration,
    },

    /// Some part of a pod's sync failed; the pod is tried again.
    #[error("pod {pod} ({uid}): {message}")]
    SyncPod {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// All that failed, in one line.
        message: String,
    },

    /// The node can have no more volumes attached: the pod is rejected, and has failed. A
    /// [`VolumeManager`](crate::VolumeManager) says it instead of letting the pod wait.
    #[error("Node has reached its volume attachment limit, rejecting pod. {message}")]
    VolumeAttachLimitExceeded {
        /// Which of its volumes are missing, and why, as the pod's status is to tell it.
        message: String,
    },

    /// A container waits for its restart back-off to pass; the pod is tried again then.
    ///
    /// The kubelet's `BackoffError`: the worker waits for it and no longer.
    #[error("pod {pod} ({uid}): {message}")]
    BackOff {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// When the first back-off of the pod ends, on tokio's clock.
        until: tokio::time::Instant,
        /// Which containers wait.
        message: String,
    },

    /// The runtime's network is not ready; the pod waits, except on the host's network.
    #[error("network is not ready: {message}")]
    NetworkNotReady {
        /// What the runtime said of its network.
        message: String,
    },

    /// The work was cut short because the pod is to end or the agent shuts down.
    #[error("cancelled")]
    Cancelled,

    /// The parts given to an assembly do not make an agent. All problems are told together.
    #[error("misconfigured: {}", .problems.join("; "))]
    Misconfigured {
        /// One line each.
        problems: Vec<String>,
    },

    /// A pod source cannot go on. Pods already known stay known.
    #[error("source {name}: {message}")]
    PodSource {
        /// The source's name.
        name: String,
        /// What happened, naming the file, URL or object.
        message: String,
    },

    /// A status sink refused or could not be reached.
    #[error("status of pod {pod} ({uid}): {source}")]
    StatusSink {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// What the sink said.
        source: Source,
    },

    /// A status sink is too busy, and said when to come back.
    #[error("status of pod {pod} ({uid}), to be sent again in {retry_after:?}: {source}")]
    StatusSinkBusy {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// Not before this has passed.
        retry_after: Duration,
        /// What the sink said.
        source: Source,
    },

    /// The mirror of a static pod could not be created or deleted.
    #[error("mirror pod {pod}: {source}")]
    MirrorPod {
        /// The name that it shares with its static pod.
        pod: PodKey,
        /// What the API server said.
        source: Source,
    },

    /// The node could not be read.
    #[error("node {name}: {source}")]
    Node {
        /// The node's name.
        name: String,
        /// What was said.
        source: Source,
    },

    /// A config map or secret could not be read.
    #[error("{kind} {name}: {source}")]
    ConfigObject {
        /// `configmap` or `secret`.
        kind: String,
        /// Its namespace and name.
        name: String,
        /// What was said.
        source: Source,
    },

    /// Reading or writing what is kept of a pod on disk failed.
    #[error("{path}{}: {source}", about(.pod))]
    Io {
        /// The file or folder.
        path: String,
        /// The pod it belongs to, if to one.
        pod: Option<PodUid>,
        /// What the operating system said.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// A failed runtime call about no pod in particular.
    pub fn runtime(call: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Error::Runtime {
            call,
            pod: None,
            source: Arc::new(source),
        }
    }

    /// A failed runtime call about one pod.
    pub fn runtime_pod(
        call: &'static str,
        pod: &PodUid,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Error::Runtime {
            call,
            pod: Some(pod.clone()),
            source: Arc::new(source),
        }
    }

    /// A failed access to a file or folder.
    pub fn io(path: impl AsRef<std::path::Path>, pod: Option<&PodUid>, source: std::io::Error) -> Self {
        Error::Io {
            path: path.as_ref().display().to_string(),
            pod: pod.cloned(),
            source: Arc::new(source),
        }
    }
}

fn about(pod: &Option<PodUid>) -> String {
    pod.as_ref()
        .map(|uid| format!(" (pod {uid})"))
        .unwrap_or_default()
}
