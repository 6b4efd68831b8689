//! What a pod worker does to its pod in each of its three phases.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use tokio::time::Instant;

use crate::Result;
use crate::runtime::{PodStatus, RuntimePod};

/// Why a pod is synced (`types.SyncPodType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncPodType {
    /// It is looked at again.
    Sync,
    /// Its spec changed.
    Update,
    /// It is new.
    Create,
    /// It is to end.
    Kill,
}

/// What came of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncOutcome {
    /// The pod has reached a terminal phase by itself: it is to be ended.
    pub terminal: bool,
    /// It is to be synced again as soon as the runtime tells something newer of it.
    pub again: bool,
}

/// Changes the API status of a pod that is killed, e.g. to say it was evicted (`PodStatusFunc`).
pub type PodStatusFn = Arc<dyn Fn(&mut ApiPodStatus) + Send + Sync>;

/// Does the work of [`PodWorkers`](crate::PodWorkers): one method for each thing a worker may have to do.
/// For one pod the calls come one after the other.
///
/// Answers to the kubelet's `podSyncer`. Errors are retried by the worker.
#[async_trait]
pub trait PodSyncer: Send + Sync + 'static {
    /// Brings a running pod closer to its spec (`SyncPod`).
    ///
    /// # Cancel safety
    ///
    /// Dropped when the pod is to end; the next call for the pod is `sync_terminating_pod`.
    async fn sync_pod(
        &self,
        update: SyncPodType,
        pod: &Arc<Pod>,
        mirror: Option<&Arc<Pod>>,
        status: &Arc<PodStatus>,
    ) -> Result<SyncOutcome>;

    /// Whatever comes of a sync: look at the pod again at this time at the latest (its active deadline, say), on
    /// tokio's clock. A time that has passed says nothing. By default there is none.
    fn look_again_at(&self, pod: &Arc<Pod>) -> Option<Instant> {
        let _ = pod;
        None
    }

    /// Stops all containers of the pod; `Ok` means that none runs (`SyncTerminatingPod`).
    ///
    /// # Cancel safety
    ///
    /// Dropped when the grace period shrinks, and called again with the new one.
    async fn sync_terminating_pod(
        &self,
        pod: &Arc<Pod>,
        status: &Arc<PodStatus>,
        grace_period: Option<Duration>,
        status_fn: Option<&PodStatusFn>,
    ) -> Result<()>;

    /// Stops all containers of a pod that only the runtime knows (`SyncTerminatingRuntimePod`).
    async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()>;

    /// Cleans up after a pod whose containers have ended (`SyncTerminatedPod`): after `Ok` nothing of it is
    /// held but its record.
    async fn sync_terminated_pod(&self, pod: &Arc<Pod>, status: &Arc<PodStatus>) -> Result<()>;
}
