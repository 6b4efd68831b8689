//! The container runtime as the kubelet sees it: pods, their containers, and four verbs.
//!
//! [`RuntimeReader`] is all that a PLEG asks; [`Runtime`] adds what a pod worker asks. Implement both when
//! pods are opaque to you. When you have containers, or CRI, see the `kubelet-cri` crate: it makes a
//! [`Runtime`] of either.

mod back_off;
mod pod;
mod pod_status;
mod resize;
mod start_record;
mod sync_result;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;

pub use back_off::BackOff;
pub use pod::{Container, ContainerState, RuntimePod, Sandbox, SandboxState};
pub use pod_status::{
    ContainerResources, ContainerStatus, ContainerUser, PodStatus, RestartCount, SandboxStatus,
    VolumeMountStatus,
};
pub use resize::{ActuatedResources, ResizeRefusal};
pub use start_record::{ContainerStart, StartRecord};
pub use sync_result::{PodSyncResult, SyncAction, SyncFailure, SyncResult};

use crate::{ContainerId, PodUid, Result};

/// The read half of a runtime: what a pod lifecycle event generator needs, and no more.
///
/// Answers to the parts of the kubelet's `container.Runtime` that `pkg/kubelet/pleg` calls.
///
/// # Cancel safety
///
/// Every call may be dropped at any time; it must leave nothing behind.
#[async_trait]
pub trait RuntimeReader: Send + Sync {
    /// All pods that the runtime knows, each once; with `all` the containers that ended are included, else
    /// only sandboxes that are ready and containers that run (`GetPods`).
    ///
    /// # Return the same `Arc`s for pods that did not change
    ///
    /// A PLEG does not look at a pod that is the same `Arc` as in the last list. A list that is built anew works as well,
    /// and makes the same events; its pods are compared by their UIDs and the ids and states of their containers and
    /// sandboxes. Return the pods in the same order each time: then none of them is looked up.
    ///
    /// What `kubelet_pleg::GenericPleg` does per list of idle pods, of two containers each, on one core of a server:
    ///
    /// | the list has | 1,000 pods | 5,000 pods |
    /// |---|---|---|
    /// | the same `Arc`s | 11 µs | 51 µs |
    /// | new `Arc`s: the relist | 27 µs | 0.17 to 0.54 ms |
    /// | new `Arc`s: to free the old ones, afterwards | 0.1 to 0.3 ms | 0.8 to 4 ms |
    ///
    /// To build a new list takes a runtime at least as long as to free it. So to reuse what did not change saves more in the
    /// runtime than in the PLEG.
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>>;

    /// One pod as [`pods`](Self::pods)`(true)` would list it, or `None` if the runtime has nothing of it
    /// (`GetPod`). The default looks it up in the whole list.
    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        Ok(self.pods(true).await?.into_iter().find(|pod| pod.uid == *uid))
    }

    /// The full status of a pod of the list: IPs, and each container's times, exit code, reason and message
    /// (`GetPodStatus`). What came to the pod after it was listed may be missing: the status is as new as the list,
    /// and whoever keeps it dates it so.
    ///
    /// A runtime that keeps its statuses may hand out the same `Arc`s again and again.
    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>>;

    /// A stream of hints "this pod changed", or `None` if this runtime has none. An item is a reason to look
    /// at the pod, never data; the stream may end or fail at any time and is asked for anew.
    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        Ok(None)
    }
}

/// A runtime that runs whole pods: the highest of the three heights at which a runtime can be written.
///
/// Answers to the kubelet's `container.Runtime`.
#[async_trait]
pub trait Runtime: RuntimeReader {
    /// The runtime's name, the first part of its container ids: `containerd` (`Type`).
    fn runtime_type(&self) -> &str;

    /// Whether the runtime and its network are ready (`Status`). Asked before pods are synced.
    async fn status(&self) -> Result<RuntimeStatus>;

    /// Brings the running pod to what its spec says: makes and kills sandboxes and containers (`SyncPod`).
    /// Failures are told per container in the result. Does what can be done now and returns; it does not
    /// wait for a container to end.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the pod is to end. Whatever was made must be found by the next
    /// [`pods`](RuntimeReader::pods).
    async fn sync_pod(&self, pod: &Arc<Pod>, status: &PodStatus) -> PodSyncResult;

    /// The same, for an agent that keeps a record of what it starts: the runtime tells `starts` of each container
    /// before it starts it, and leaves it alone where that fails. The default tells nothing: what such a runtime
    /// started and lost before its pod was seen to run is started once more.
    async fn sync_pod_recorded(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        starts: &dyn StartRecord,
    ) -> PodSyncResult {
        let _ = starts;
        self.sync_pod(pod, status).await
    }

    /// Stops all containers of a pod, then its sandboxes, and returns when they have stopped (`KillPod`).
    /// `pod` is `None` when only the runtime knows it. `grace_period` overrides the pod's own. Idempotent.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, when the grace period shrinks, and is called again.
    async fn kill_pod(
        &self,
        pod: Option<&Arc<Pod>>,
        running: &RuntimePod,
        grace_period: Option<Duration>,
    ) -> Result<()>;

    /// Removes dead containers, sandboxes and their logs (`GarbageCollect`), within `policy`. The default
    /// has nothing to remove.
    async fn garbage_collect(&self, policy: &GcPolicy, pods: &dyn PodStateProvider) -> Result<()> {
        let _ = (policy, pods);
        Ok(())
    }

    /// Removes a container that has ended, and its logs (`DeleteContainer`). Idempotent. The default leaves it to
    /// [`garbage_collect`](Self::garbage_collect).
    async fn delete_container(&self, container: &ContainerId) -> Result<()> {
        let _ = container;
        Ok(())
    }

    /// What of the pod waits after failures, for the record that outlasts the agent: kept as long as
    /// [`restore_back_offs`](Self::restore_back_offs) is to know of it. The default has no back-offs.
    fn back_offs(&self, uid: &PodUid) -> Vec<BackOff> {
        let _ = uid;
        Vec::new()
    }

    /// The agent was started again: the pod goes on waiting for what it waited for before. Called before the pod's
    /// first sync; what is not known any more is passed over.
    fn restore_back_offs(&self, uid: &PodUid, back_offs: Vec<BackOff>) {
        let _ = (uid, back_offs);
    }

    /// Why the pod cannot go from the resources of `allocated` to those of `desired` while it runs; `None` where that is for
    /// the node to decide. The default runtime gives nothing to what runs, and says so.
    fn refuses_resize(&self, desired: &Pod, allocated: &Pod) -> Option<ResizeRefusal> {
        let _ = (desired, allocated);
        Some(ResizeRefusal::unsupported())
    }

    /// Whether some container that runs, or the pod as a whole, was not given the resources of its spec yet
    /// (`IsPodResizeInProgress`). Asked before each sync. The default runtime resizes nothing.
    fn is_pod_resize_in_progress(&self, pod: &Pod, status: &PodStatus) -> bool {
        let _ = (pod, status);
        false
    }

    /// What the pod and its containers were given last, for the record that outlasts the agent. The default keeps nothing.
    fn actuated_resources(&self, uid: &PodUid) -> Vec<ActuatedResources> {
        let _ = uid;
        Vec::new()
    }

    /// The agent was started again: this is what the pod's containers were given last. Called before the pod's first sync.
    fn restore_actuated_resources(&self, uid: &PodUid, actuated: Vec<ActuatedResources>) {
        let _ = (uid, actuated);
    }

    /// The pod is gone for good: forget what is kept of it in memory (back-offs, records). The default keeps
    /// nothing.
    fn forget_pod(&self, uid: &PodUid) {
        let _ = uid;
    }
}

/// Whether a runtime can be worked with (`container.RuntimeStatus`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Condition `RuntimeReady`; the message says why not.
    pub runtime_ready: Readiness,
    /// Condition `NetworkReady`; the message says why not. Pods on the host's network do not wait for it.
    pub network_ready: Readiness,
}

/// One condition of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It is ready.
    #[default]
    Ready,
    /// It is not, for this reason (`reason:… message:…` in the kubelet's words).
    NotReady(String),
}

/// What may be collected (`container.GCPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// How long a container must have been dead; `minimumContainerTTLDuration`, 0 by default.
    pub min_age: Duration,
    /// How many dead instances of each container stay; `maxPerPodContainerCount`, 1 by default.
    pub max_per_pod_container: Option<u32>,
    /// How many dead containers stay in all; `maxContainerCount`, no bound by default.
    pub max_containers: Option<u32>,
    /// All pod sources have been seen: containers of unknown pods are garbage too.
    pub all_sources_ready: bool,
    /// Under pressure: containers of pods that ended, but are not deleted, are garbage too.
    pub evict_terminated_pods: bool,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self {
            min_age: Duration::ZERO,
            max_per_pod_container: Some(1),
            max_containers: None,
            all_sources_ready: false,
            evict_terminated_pods: false,
        }
    }
}

/// What a collector of garbage asks before it removes what belongs to a pod (`kuberuntime.podStateProvider`).
pub trait PodStateProvider: Send + Sync {
    /// The pod has ended and is deleted or evicted: what its containers left may go
    /// (`ShouldPodContentBeRemoved`).
    fn should_pod_content_be_removed(&self, uid: &PodUid) -> bool;

    /// Nothing of the pod runs or will: its sandboxes may go (`ShouldPodRuntimeBeRemoved`).
    fn should_pod_runtime_be_removed(&self, uid: &PodUid) -> bool;
}
