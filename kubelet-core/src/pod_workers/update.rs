//! What others ask of a pod's worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;

use crate::pod_syncer::{PodStatusFn, SyncPodType};
use crate::runtime::RuntimePod;

/// A change for one pod's worker (`UpdatePodOptions`).
#[derive(Debug)]
pub struct UpdatePod {
    pub(super) update_type: SyncPodType,
    pub(super) target: Target,
    pub(super) mirror: Option<Arc<Pod>>,
    pub(super) kill: Option<KillPod>,
}

impl UpdatePod {
    /// The pod is new, or changed, or should be looked at.
    pub fn new(update_type: SyncPodType, pod: Arc<Pod>) -> Self {
        Self {
            update_type,
            target: Target::Pod(pod),
            mirror: None,
            kill: None,
        }
    }

    /// The pod is to end.
    pub fn kill(pod: Arc<Pod>, kill: KillPod) -> Self {
        Self {
            update_type: SyncPodType::Kill,
            target: Target::Pod(pod),
            mirror: None,
            kill: Some(kill),
        }
    }

    /// A pod that only the runtime knows is to end.
    pub fn kill_runtime_pod(running: Arc<RuntimePod>) -> Self {
        Self {
            update_type: SyncPodType::Kill,
            target: Target::Runtime(running),
            mirror: None,
            kill: None,
        }
    }

    /// The mirror of this static pod.
    pub fn with_mirror(mut self, mirror: Option<Arc<Pod>>) -> Self {
        self.mirror = mirror;
        self
    }
}

/// The pod as desired, or, where no source lists it, as the runtime has it.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Pod(Arc<Pod>),
    Runtime(Arc<RuntimePod>),
}

impl Target {
    pub(super) fn pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Target::Pod(pod) => Some(pod),
            Target::Runtime(_) => None,
        }
    }
}

/// How a pod is to end (`KillPodOptions`).
#[derive(Default)]
pub struct KillPod {
    /// It is evicted: what it leaves is removed sooner.
    pub evict: bool,
    /// A grace period other than the pod's own; it only ever shrinks. At least one second is given.
    pub grace_period: Option<Duration>,
    /// Changes the status that the pod ends with. The last one given wins.
    pub status_fn: Option<PodStatusFn>,
    /// Told when the pod's containers have ended; dropped without a word if the pod never had any, is
    /// finished already, or the workers end first.
    pub completed: Option<oneshot::Sender<()>>,
}

impl fmt::Debug for KillPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KillPod")
            .field("evict", &self.evict)
            .field("grace_period", &self.grace_period)
            .finish_non_exhaustive()
    }
}
