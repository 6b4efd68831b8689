//! From runtime status to API status to a sink: the traits.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus as ApiPodStatus};
use tokio_util::sync::CancellationToken;

use crate::pod::has_terminal_phase;
use crate::runtime::{ContainerResources, PodStatus, SyncFailure};
use crate::{ContainerId, NoProbes, PodUid, ProbeResults, Result};

/// Keeps each pod's API status and sends what changed to a [`StatusSink`]. Answers to the kubelet's
/// `status.Manager`, and is implemented by `kubelet-status`.
#[async_trait]
pub trait PodStatusManager: Send + 'static {
    /// The handle that pod workers report to.
    fn reporter(&self) -> Arc<dyn PodStatusReporter>;

    /// Sends what changed, until `shutdown`; then sends what can still be sent, and returns.
    async fn run(self: Box<Self>, shutdown: CancellationToken);
}

/// What the pod workers, the sync loop and the probes tell and ask of the statuses. Every call returns at once;
/// sending is the manager's business.
pub trait PodStatusReporter: Send + Sync {
    /// The API status that follows from what the runtime says and what was reported before
    /// (`generateAPIPodStatus`). Changes nothing.
    fn generate(&self, input: &PodStatusInput<'_>) -> ApiPodStatus;

    /// The status reported last (`GetPodStatus`).
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<ApiPodStatus>>;

    /// Whether the phase reported last is one that never leaves. Asked of all pods, and often.
    fn is_reported_terminal(&self, uid: &PodUid) -> bool {
        self.pod_status(uid)
            .is_some_and(|status| has_terminal_phase(&status))
    }

    /// A sync of the pod begins. If [`terminate_pod`](Self::terminate_pod) was told of one of its UID, it has come back since: its
    /// containers are about to run, whatever was told of their ends. Who minds no such end, the default, does nothing.
    fn begin_pod(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// Whether the mirror of a static pod can come to show what was reported of the pod. One that shows the end of a life before
    /// cannot: no API server lets it run again, and it is to be made anew. Who minds no such end, the default, says yes.
    fn can_be_shown_by(&self, pod: &Pod, mirror: &Pod) -> bool {
        let _ = (pod, mirror);
        true
    }

    /// Reports a status (`SetPodStatus`).
    fn set_pod_status(&self, pod: &Arc<Pod>, status: ApiPodStatus);

    /// All containers of the pod have ended and its resources are given back: its status is final, and if it
    /// is to be deleted it may be (`TerminatePod`).
    fn terminate_pod(&self, pod: &Arc<Pod>);

    /// The pod's sandbox, its network and its volumes are there, and its containers come next: the pod is
    /// `PodReadyToStartContainers` at once (`OnPodSandboxReady`). Who does nothing, the default, says so with the pod's
    /// next status.
    fn on_pod_sandbox_ready(&self, pod: &Arc<Pod>) {
        let _ = pod;
    }

    /// A readiness probe's result changed: so do the container's status and the pod's `Ready` and
    /// `ContainersReady` (`SetContainerReadiness`). Nothing happens for a container that was not reported yet.
    fn set_container_readiness(&self, uid: &PodUid, container: &ContainerId, ready: bool);

    /// A startup probe's result changed (`SetContainerStartup`). Nothing happens for a container that was not
    /// reported yet.
    fn set_container_startup(&self, uid: &PodUid, container: &ContainerId, started: bool);

    /// An image is being pulled for the pod (`RecordImageStartedPulling`), and a pod's start is not blamed for it. Who
    /// measures no starts, the default, does nothing.
    fn record_image_started_pulling(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// An image of the pod is there (`RecordImageFinishedPulling`): the pull that began first is over. One that failed
    /// goes on until the image is there.
    fn record_image_finished_pulling(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// What is said of a resize in place of the pod: whether one waits, and whether one is being done
    /// (`GetPodResizeConditions`). Who tells nothing of resizes, the default of this and the next five, keeps none.
    fn pod_resize_conditions(&self, uid: &PodUid) -> Vec<PodCondition> {
        let _ = uid;
        Vec::new()
    }

    /// A resize waits, `Infeasible` or, whatever else the reason is, `Deferred` (`SetPodResizePendingCondition`).
    /// Tells whether the reason or the generation is new. It shows in the status that is
    /// [generated](Self::generate) next.
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

    /// A resize is being done (`SetPodResizeInProgressCondition`). One that is going on keeps its generation, and
    /// its reason and message unless there is a new one of either. Returns the generation of what is being done,
    /// and whether the condition changed but for its times.
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

    /// No resize waits any more (`ClearPodResizePendingCondition`).
    fn clear_pod_resize_pending_condition(&self, uid: &PodUid) {
        let _ = uid;
    }

    /// No resize is being done any more (`ClearPodResizeInProgressCondition`): the generation of the one that was.
    fn clear_pod_resize_in_progress_condition(&self, uid: &PodUid) -> Option<i64> {
        let _ = uid;
        None
    }

    /// What an earlier run of the agent said of resizes, as the pod's status shows it
    /// (`BackfillPodResizeConditions`).
    fn backfill_pod_resize_conditions(&self, pod: &Pod) {
        let _ = pod;
    }

    /// The pod, or the mirror of a static pod, as its source has it now: where it shows another status than
    /// ours, ours is sent again, and what has ended and is to go is deleted (`needsReconcile`, `needsUpdate`).
    fn observe_pod(&self, pod: &Arc<Pod>);

    /// Forgets the statuses of all other pods, and all other mirrors (`RemoveOrphanedStatuses`).
    fn remove_orphaned_statuses(&self, known: &HashSet<PodUid>);
}

/// What a pod's API status is made of.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct PodStatusInput<'a> {
    /// The pod as desired.
    pub pod: &'a Arc<Pod>,
    /// What the runtime says of it.
    pub runtime: &'a PodStatus,
    /// The status reported last, if one was and whoever asks has it at hand: else the status manager looks it up.
    pub reported: Option<&'a ApiPodStatus>,
    /// What the kernel holds a running pod as a whole to, where that is known
    /// ([`PodContainerManager::resources`](crate::PodContainerManager::resources)).
    pub resources: Option<&'a ContainerResources>,
    /// By container: how its last start failed (the kubelet's `ReasonCache`).
    pub start_failures: Option<&'a BTreeMap<String, SyncFailure>>,
    /// What the probes of its containers found.
    pub probes: &'a dyn ProbeResults,
    /// The pod ends or has ended: nothing of it will run again.
    pub terminal: bool,
    /// Why the agent ends the pod, if it does: its phase is `Failed` then (`PodSyncHandler.ShouldEvict`).
    pub eviction: Option<&'a Eviction>,
    /// Whether a resize in place waits or is being done. The status manager puts in what it was told.
    pub resize_conditions: &'a [PodCondition],
}

/// Why the agent itself ends a pod (`lifecycle.ShouldEvictResponse`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// One word for `status.reason`, e.g. `DeadlineExceeded`, `Evicted`.
    pub reason: String,
    /// A sentence for `status.message`.
    pub message: String,
}

impl<'a> PodStatusInput<'a> {
    /// A pod that is to run, with no failed start and no probe run.
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
            resize_conditions: &[],
        }
    }
}

/// Where statuses go: an API server, a file, a queue, a test.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait StatusSink: Send + Sync + 'static {
    /// What the sink has of the pod, looked up by namespace and name: the caller compares UIDs. A sink that
    /// stores no pods says so: the default.
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        let _ = pod;
        Ok(SinkPod::NotStored)
    }

    /// Whether it shows static pods by their mirrors alone, as an API server does: then it is asked and told nothing of one
    /// before its mirror was [observed](PodStatusReporter::observe_pod). Default: no.
    fn shows_static_pods_by_mirrors(&self) -> bool {
        false
    }

    /// Changes the status of the pod, [stored](SinkPod::Stored) or as its source has it, from `old` to `new`, if
    /// its UID is still this one. `old` is what the sink has, or was told last. Returns the pod as it is then,
    /// if the sink stores pods.
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>>;

    /// Deletes the pod at once (grace period 0), if its UID is still this one. A pod that is gone already is
    /// no error. A sink that stores nothing has nothing to delete: the default.
    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        let _ = pod;
        Ok(())
    }

    /// The pod has ended and is gone from its source, and nobody keeps its status any more: a sink with a
    /// copy to show drops it. An API server does nothing: the default.
    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        let _ = pod;
        Ok(())
    }
}

/// What a [`StatusSink`] has of a pod.
#[derive(Clone, Debug)]
pub enum SinkPod {
    /// It stores pods, and has this one of that namespace and name.
    Stored(Arc<Pod>),
    /// It stores pods, and has none of that namespace and name, yet or any more.
    Absent,
    /// It stores no pods. Of each it knows what it was told last.
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
