//! The work of a pod worker in each of a pod's three phases.

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
    /// A periodic or requested sync without a change of the spec.
    Sync,
    /// Its spec changed.
    Update,
    /// It is new.
    Create,
    /// It must end.
    Kill,
}

/// The outcome of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncOutcome {
    /// The pod has reached a terminal phase: terminate it.
    pub terminal: bool,
    /// Sync the pod again as soon as the runtime has a newer status.
    pub again: bool,
}

/// Changes the API status of a pod that is killed, e.g. to report that it was evicted (`PodStatusFunc`).
pub type PodStatusFn = Arc<dyn Fn(&mut ApiPodStatus) + Send + Sync>;

/// Does the work of [`PodWorkers`](crate::PodWorkers): one method per kind of work. The calls for one pod never
/// overlap.
///
/// Answers to the kubelet's `podSyncer`. Errors are retried by the worker.
#[async_trait]
pub trait PodSyncer: Send + Sync + 'static {
    /// Brings a running pod closer to its spec (`SyncPod`).
    ///
    /// # Cancel safety
    ///
    /// Dropped when the pod must end; the next call for the pod is `sync_terminating_pod`.
    async fn sync_pod(
        &self,
        update: SyncPodType,
        pod: &Arc<Pod>,
        mirror: Option<&Arc<Pod>>,
        status: &Arc<PodStatus>,
    ) -> Result<SyncOutcome>;

    /// The latest time of the pod's next sync, whatever the result of this one (e.g. its active deadline), on tokio's
    /// clock. A time in the past is ignored. By default, `None`.
    fn look_again_at(&self, pod: &Arc<Pod>) -> Option<Instant> {
        let _ = pod;
        None
    }

    /// Stops all containers of the pod; after `Ok` none of them runs (`SyncTerminatingPod`).
    ///
    /// # Cancel safety
    ///
    /// Dropped when the grace period is shortened, and called again with the new one.
    async fn sync_terminating_pod(
        &self,
        pod: &Arc<Pod>,
        status: &Arc<PodStatus>,
        grace_period: Option<Duration>,
        status_fn: Option<&PodStatusFn>,
    ) -> Result<()>;

    /// Stops all containers of a pod that only the runtime knows (`SyncTerminatingRuntimePod`).
    async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()>;

    /// Cleans up after a pod whose containers have ended (`SyncTerminatedPod`). After `Ok`, the pod holds no resources;
    /// only its record is left.
    async fn sync_terminated_pod(&self, pod: &Arc<Pod>, status: &Arc<PodStatus>) -> Result<()>;
}
