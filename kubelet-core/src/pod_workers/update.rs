//! Requests to a pod's worker.

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
    /// The pod is new, has changed, or should be synced.
    pub fn new(update_type: SyncPodType, pod: Arc<Pod>) -> Self {
        Self {
            update_type,
            target: Target::Pod(pod),
            mirror: None,
            kill: None,
        }
    }

    /// The pod must end.
    pub fn kill(pod: Arc<Pod>, kill: KillPod) -> Self {
        Self {
            update_type: SyncPodType::Kill,
            target: Target::Pod(pod),
            mirror: None,
            kill: Some(kill),
        }
    }

    /// A pod that only the runtime knows must end.
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

/// The desired pod; the runtime's view of it if no source lists it.
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
    /// It is evicted: its containers are removed sooner.
    pub evict: bool,
    /// A grace period other than the pod's own. It only becomes shorter, and is at least one second.
    pub grace_period: Option<Duration>,
    /// Changes the pod's final status. The last one set is used.
    pub status_fn: Option<PodStatusFn>,
    /// Notified when the pod's containers have ended. Dropped if the pod never had containers, has finished already, or
    /// the workers stop first.
    pub completed: Option<oneshot::Sender<()>>,
}

crate::impl_debug!(KillPod: evict, grace_period);
