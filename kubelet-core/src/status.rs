//! The traits between the runtime status, the API status and a status sink.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus as ApiPodStatus};
use tokio_util::sync::CancellationToken;

use crate::pod::has_terminal_phase;
use crate::runtime::{AppliedResources, PodStatus, SyncFailure};
use crate::{ContainerId, NoProbes, PodUid, ProbeResults, Result};

/// Keeps each pod's API status and sends changes to a [`StatusSink`]. Answers to the kubelet's `status.Manager`;
/// `kubelet-status` implements it.
#[async_trait]
pub trait PodStatusManager: Send + 'static {
    /// The handle that other parts report to.
    fn reporter(&self) -> Arc<dyn PodStatusReporter>;

    /// Sends changes until `shutdown`; then sends what it still can, and returns.
    async fn run(self: Box<Self>, shutdown: CancellationToken);
}

/// How the pod workers, the sync loop and the probes use the status manager. Every call returns at once; statuses are
/// sent in the background.
pub trait PodStatusReporter: Send + Sync {
    /// Generates the API status from the runtime status and the status reported before (`generateAPIPodStatus`).
    /// Changes nothing.
    fn generate(&self, input: &PodStatusInput<'_>) -> ApiPodStatus;

    /// The status reported last (`GetPodStatus`).
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<ApiPodStatus>>;

    /// Whether the phase reported last is terminal. Called for all pods, and often.
    fn is_reported_terminal(&self, uid: &PodUid) -> bool {
        self.pod_status(uid)
            .is_some_and(|status| has_terminal_phase(&status))
    }

    /// A sync of the pod starts: until [`containers_ended`](Self::containers_ended), a container of it may run. If
    /// [`terminate_pod`](Self::terminate_pod) was called for its UID before, the pod has come back: its containers will run again,
    /// although their exits were reported. By default, it does nothing.
    fn begin_pod(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// No container of the pod runs, and none will be started. A terminal phase that was reported before can be sent now: whoever sees it
    /// takes the pod's resources for free (`PodCouldHaveRunningContainers`). By default, it does nothing.
    fn containers_ended(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// Whether the mirror of a static pod can show the status reported for the pod. A mirror that shows the end of an
    /// earlier run cannot, since no API server lets a pod leave a terminal phase: it must be created again. By default,
    /// `true`.
    fn can_be_shown_by(&self, pod: &Pod, mirror: &Pod) -> bool {
        let _ = (pod, mirror);
        true
    }

    /// Reports a status (`SetPodStatus`).
    fn set_pod_status(&self, pod: &Arc<Pod>, status: ApiPodStatus);

    /// All containers of the pod have ended and its resources are released: its status is final. If the pod is being
    /// deleted, it can be removed now (`TerminatePod`).
    fn terminate_pod(&self, pod: &Arc<Pod>);

    /// The pod's sandbox, network and volumes are ready, and its containers come next: the pod is
    /// `PodReadyToStartContainers` at once (`OnPodSandboxReady`). By default, it does nothing, and the condition
    /// changes with the pod's next status.
    fn on_pod_sandbox_ready(&self, pod: &Arc<Pod>) {
        let _ = pod;
    }

    /// A readiness probe has a new result, which changes the container's status and the pod's conditions `Ready` and
    /// `ContainersReady` (`SetContainerReadiness`). Ignored for a container that was not reported yet.
    fn set_container_readiness(&self, uid: &PodUid, container: &ContainerId, ready: bool);

    /// A startup probe has a new result (`SetContainerStartup`). Ignored for a container that was not reported yet.
    fn set_container_startup(&self, uid: &PodUid, container: &ContainerId, started: bool);

    /// An image pull for the pod has started (`RecordImageStartedPulling`); its time does not count for the pod's start
    /// latency. By default, it does nothing.
    fn record_image_started_pulling(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// An image of the pod is present (`RecordImageFinishedPulling`): the pull that started first is over. A failed
    /// pull counts as running until the image is present.
    fn record_image_finished_pulling(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// The resize conditions of the pod: whether a resize is pending, and whether one is in progress
    /// (`GetPodResizeConditions`). By default, this and the next five methods keep none.
    fn pod_resize_conditions(&self, uid: &PodUid) -> Vec<PodCondition> {
        let _ = uid;
        Vec::new()
    }

    /// A resize is pending: `Infeasible`, or for any other reason `Deferred` (`SetPodResizePendingCondition`). Returns
    /// whether the reason or the generation is new. The condition appears in the next [generated](Self::generate)
    /// status.
    fn set_pod_resize_pending_condition(
        &self,
        uid: &PodUid,
        reason: &str,
        message: &str,
        observed_generation: i64,
    ) -> bool {
        let _ = (uid, reason, message, observed_generation);
        false
    }

    /// A resize is in progress (`SetPodResizeInProgressCondition`). A resize that is already in progress keeps its
    /// generation, and its reason and message unless new ones are given. Returns the generation of the resize in
    /// progress, and whether the condition changed apart from its times.
    fn set_pod_resize_in_progress_condition(
        &self,
        uid: &PodUid,
        reason: &str,
        message: &str,
        observed_generation: i64,
    ) -> (i64, bool) {
        let _ = (uid, reason, message);
        (observed_generation, false)
    }

    /// No resize is pending any more (`ClearPodResizePendingCondition`).
    fn clear_pod_resize_pending_condition(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// No resize is in progress any more (`ClearPodResizeInProgressCondition`). Returns the generation of the one that
    /// was.
    fn clear_pod_resize_in_progress_condition(&self, uid: &PodUid) -> Option<i64> {
        let _ = uid;
        None
    }

    /// Restores the resize conditions of an earlier run of the agent from the pod's status
    /// (`BackfillPodResizeConditions`).
    fn backfill_pod_resize_conditions(&self, pod: &Pod) {
        let _ = pod;
    }

    /// The pod, or the mirror of a static pod, as its source has it now. If its status differs from the reported one,
    /// the reported one is sent again. If it has ended and is being deleted, it is deleted (`needsReconcile`,
    /// `needsUpdate`).
    fn observe_pod(&self, pod: &Arc<Pod>);

    /// Removes the statuses of all other pods, and all other mirrors (`RemoveOrphanedStatuses`).
    fn remove_orphaned_statuses(&self, known: &HashSet<PodUid>);
}

/// The input of a pod's API status.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct PodStatusInput<'a> {
    /// The desired pod.
    pub pod: &'a Arc<Pod>,
    /// Its runtime status.
    pub runtime: &'a PodStatus,
    /// The status reported last, if the caller has it; otherwise the status manager looks it up.
    pub reported: Option<&'a ApiPodStatus>,
    /// The limits of a running pod's cgroup, if they are known
    /// ([`PodContainerManager::resources`](crate::PodContainerManager::resources)).
    pub resources: Option<&'a AppliedResources>,
    /// By container: how its last start failed (the kubelet's `ReasonCache`).
    pub start_failures: Option<&'a BTreeMap<String, SyncFailure>>,
    /// The results of its containers' probes.
    pub probes: &'a dyn ProbeResults,
    /// The pod is ending or has ended: none of its containers will run again.
    pub terminal: bool,
    /// Why the agent ends the pod, if it does; the phase is then `Failed` (`PodSyncHandler.ShouldEvict`).
    pub eviction: Option<&'a Eviction>,
    /// Whether the runtime can make mounts of this pod read-only recursively
    /// ([`Runtime::has_recursive_read_only_mounts`](crate::Runtime::has_recursive_read_only_mounts)).
    pub recursive_read_only: bool,
    /// The resize conditions. The status manager fills them in.
    pub resize_conditions: &'a [PodCondition],
}

/// Why the agent itself ends a pod (`lifecycle.ShouldEvictResponse`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// `status.reason`, e.g. `DeadlineExceeded`, `Evicted`.
    pub reason: String,
    /// `status.message`.
    pub message: String,
}

impl<'a> PodStatusInput<'a> {
    /// A pod that should run, without failed starts and without probe results.
    pub fn new(pod: &'a Arc<Pod>, runtime: &'a PodStatus) -> Self {
        Self {
            pod,
            runtime,
            reported: None,
            resources: None,
            start_failures: None,
            probes: &NoProbes,
            terminal: false,
            eviction: None,
            recursive_read_only: false,
            resize_conditions: &[],
        }
    }
}

/// The destination of statuses: an API server, a file, a queue, a test.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait StatusSink: Send + Sync + 'static {
    /// Gets the sink's version of the pod by namespace and name; the caller compares UIDs. By default, the sink stores
    /// no pods.
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        let _ = pod;
        Ok(SinkPod::NotStored)
    }

    /// Whether it shows static pods only through their mirrors, as an API server does. Then no request is made for a
    /// static pod before its mirror was [observed](PodStatusReporter::observe_pod). Default: no.
    fn shows_static_pods_by_mirrors(&self) -> bool {
        false
    }

    /// Changes the status of the pod from `old` to `new`, if the pod still has this UID. `pod` is the
    /// [stored](SinkPod::Stored) one, or the source's. `old` is the sink's status, or the one sent last. Returns the
    /// changed pod, if the sink stores pods.
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>>;

    /// Deletes the pod at once (grace period 0), if it still has this UID. It is no error if the pod is gone. By
    /// default, for sinks that store nothing, it does nothing.
    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        let _ = pod;
        Ok(())
    }

    /// The pod has ended and is gone from its source, and its status is no longer kept: a sink that keeps a copy drops
    /// it. By default, it does nothing.
    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        let _ = pod;
        Ok(())
    }
}

/// A [`StatusSink`]'s version of a pod.
#[derive(Clone, Debug)]
pub enum SinkPod {
    /// It stores pods, and has this one with that namespace and name.
    Stored(Arc<Pod>),
    /// It stores pods, and has none with that namespace and name.
    Absent,
    /// It stores no pods. The caller remembers the status that was sent last.
    NotStored,
}

#[async_trait]
impl<S: StatusSink + ?Sized> StatusSink for Arc<S> {
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        (**self).get(pod).await
    }

    fn shows_static_pods_by_mirrors(&self) -> bool {
        (**self).shows_static_pods_by_mirrors()
    }

    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        (**self).patch_status(pod, old, new).await
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        (**self).delete(pod).await
    }

    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        (**self).forget(pod).await
    }
}
