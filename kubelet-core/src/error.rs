//! The error of this crate, and of every trait that it defines.

use std::sync::Arc;
use std::time::Duration;

use crate::{PodKey, PodUid};

/// A result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// The errors of this crate and its traits.
///
/// Cheap to clone: the error of one failed inspection goes to every waiter.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call to the container runtime failed.
    #[error("runtime: {call}{}: {source}", about(.pod))]
    Runtime {
        /// The call, e.g. `ListContainers`.
        call: &'static str,
        /// The pod, if the call was about one.
        pod: Option<PodUid>,
        /// The runtime's error.
        source: Source,
    },

    /// The runtime is down or not ready; nothing is synced until it is ready.
    #[error("{message}")]
    RuntimeNotReady {
        /// The problem.
        message: String,
    },

    /// The runtime does not support this. The kubelet answers 501 or emits an event.
    #[error("the runtime does not support {what}")]
    Unsupported {
        /// The capability asked for, e.g. `exec`.
        what: &'static str,
    },

    /// No answer within the deadline.
    #[error("{what}{}: no answer within {after:?}", about(.pod))]
    Timeout {
        /// The operation.
        what: &'static str,
        /// The pod, if the operation was about one.
        pod: Option<PodUid>,
        /// The deadline that passed.
        after: Duration,
    },

    /// A part of a pod's sync failed; the sync is retried.
    #[error("pod {pod} ({uid}): {message}")]
    SyncPod {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// All failures, in one line.
        message: String,
    },

    /// The node cannot attach more volumes: the pod is rejected. A [`VolumeManager`](crate::VolumeManager) returns this
    /// instead of letting the pod wait.
    #[error("Node has reached its volume attachment limit, rejecting pod. {message}")]
    VolumeAttachLimitExceeded {
        /// Which of its volumes are missing, and why; part of the pod's status.
        message: String,
    },

    /// A container waits for the end of its back-off; the sync is retried then.
    ///
    /// The kubelet's `BackoffError`.
    #[error("pod {pod} ({uid}): {message}")]
    BackOff {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// When the earliest back-off of the pod ends, on tokio's clock.
        until: tokio::time::Instant,
        /// Which containers wait.
        message: String,
    },

    /// The runtime's network is not ready. The pod waits, unless it uses the host's network.
    #[error("network is not ready: {message}")]
    NetworkNotReady {
        /// The runtime's message.
        message: String,
    },

    /// The work was cancelled because the pod is ending or the agent shuts down.
    #[error("cancelled")]
    Cancelled,

    /// The parts do not make a complete agent. All problems are reported together.
    #[error("misconfigured: {}", .problems.join("; "))]
    Misconfigured {
        /// The problems.
        problems: Vec<String>,
    },

    /// A pod source failed permanently. Its pods stay.
    #[error("source {name}: {message}")]
    PodSource {
        /// The source's name.
        name: String,
        /// The problem, with the file, URL or object.
        message: String,
    },

    /// A status sink refused a status or was not reachable.
    #[error("status of pod {pod} ({uid}): {source}")]
    StatusSink {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// The sink's error.
        source: Source,
    },

    /// A status sink no longer has the pod: it was deleted, or another pod has its name. That is no problem of the sink.
    #[error("status of pod {pod} ({uid}): the pod no longer exists: {source}")]
    StatusSinkPodGone {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// The sink's error.
        source: Source,
    },

    /// A status sink is too busy and asked for a later retry.
    #[error("status of pod {pod} ({uid}), retry after {retry_after:?}: {source}")]
    StatusSinkBusy {
        /// The pod.
        pod: PodKey,
        /// Its UID.
        uid: PodUid,
        /// The minimum wait before the retry.
        retry_after: Duration,
        /// The sink's error.
        source: Source,
    },

    /// A mirror pod could not be created or deleted.
    #[error("mirror pod {pod}: {source}")]
    MirrorPod {
        /// The name that it shares with its static pod.
        pod: PodKey,
        /// The API server's error.
        source: Source,
    },

    /// The node could not be read.
    #[error("node {name}: {source}")]
    Node {
        /// The node's name.
        name: String,
        /// The error.
        source: Source,
    },

    /// A config map or secret could not be read.
    #[error("{kind} {name}: {source}")]
    ConfigObject {
        /// `configmap` or `secret`.
        kind: String,
        /// Its namespace and name.
        name: String,
        /// The error.
        source: Source,
    },

    /// Trust anchors or a certificate for pods could not be provided.
    #[error("{message}")]
    Certificates {
        /// The bundle, signer or pod, and why.
        message: String,
    },

    /// A file or folder of a pod could not be read or written.
    #[error("{path}{}: {source}", about(.pod))]
    Io {
        /// The file or folder.
        path: String,
        /// The pod that it belongs to, if any.
        pod: Option<PodUid>,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
}

impl Error {
    /// A failed runtime call that is not about one pod.
    pub fn runtime(call: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Error::Runtime {
            call,
            pod: None,
            source: Arc::new(source),
        }
    }

    /// A failed runtime call about a pod.
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
