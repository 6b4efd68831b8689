//! The container runtime from the kubelet's view: pods and their containers.
//!
//! [`RuntimeReader`] is all that a PLEG needs; [`Runtime`] adds what a pod worker needs. Implement both if your runtime
//! handles whole pods. If it handles containers, or speaks CRI, use the `kubelet-cri` crate, which provides a
//! [`Runtime`] for either.

mod back_off;
mod container_logs;
mod pod;
mod pod_status;
mod resize;
mod start_record;
pub mod streaming;
mod sync_result;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;

pub use back_off::BackOff;
pub use container_logs::{ContainerLogs, LogStreams, PodLogOptions};
pub use pod::{Container, ContainerState, RuntimePod, Sandbox, SandboxState};
pub use pod_status::{
    AppliedResources, ContainerStatus, ContainerUser, PodStatus, RestartCount, SandboxStatus,
    VolumeMountStatus,
};
pub use resize::{ActuatedResources, ResizeRefusal};
pub use start_record::{ContainerStart, StartRecord};
pub use sync_result::{PodSyncResult, SyncAction, SyncFailure, SyncResult};

use crate::{ContainerId, PodUid, Result};

/// The read half of a runtime: all that a pod lifecycle event generator needs.
///
/// Answers to the parts of the kubelet's `container.Runtime` that `pkg/kubelet/pleg` calls.
///
/// # Cancel safety
///
/// Every call may be dropped at any time and must not leave partial state.
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

    /// One pod as in [`pods`](Self::pods)`(true)`, or `None` if the runtime does not have it (`GetPod`). The default
    /// searches the whole list.
    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        Ok(self.pods(true).await?.into_iter().find(|pod| pod.uid == *uid))
    }

    /// The full status of a listed pod: IPs, and each container's times, exit code, reason and message
    /// (`GetPodStatus`). Changes after the list may be missing: the status counts as old as the list.
    ///
    /// A runtime that keeps statuses may return the same `Arc`s again.
    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>>;

    /// A stream of hints that a pod changed, or `None` if the runtime has none. A hint is a reason to inspect the pod
    /// and carries no data. The stream may end or fail at any time; it is then requested again.
    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        Ok(None)
    }
}

/// A runtime that runs whole pods: the highest of the three levels at which a runtime can be implemented.
///
/// Answers to the kubelet's `container.Runtime`.
#[async_trait]
pub trait Runtime: RuntimeReader {
    /// The runtime's name, the prefix of its container ids: `containerd` (`Type`).
    fn runtime_type(&self) -> &str;

    /// Whether the runtime and its network are ready (`Status`). Called before pods are synced.
    async fn status(&self) -> Result<RuntimeStatus>;

    /// Makes the running pod match its spec: creates and kills sandboxes and containers (`SyncPod`). Failures are
    /// reported per container in the result. Does what is possible now and returns; it does not wait for containers to
    /// exit.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the pod must end. The next [`pods`](RuntimeReader::pods) must list whatever was
    /// created.
    async fn sync_pod(&self, pod: &Arc<Pod>, status: &PodStatus) -> PodSyncResult;

    /// The same, for an agent that records what it starts: the runtime calls `starts` before it starts a container, and
    /// does not start it if that fails. The default does not call it: a container that such a runtime started and lost
    /// before it was seen running is started again.
    async fn sync_pod_recorded(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        starts: &dyn StartRecord,
    ) -> PodSyncResult {
        let _ = starts;
        self.sync_pod(pod, status).await
    }

    /// Stops all containers of a pod, then its sandboxes, and returns when they have stopped (`KillPod`). `pod` is
    /// `None` if only the runtime knows it. `grace_period` overrides the pod's own. Idempotent.
    ///
    /// # Cancel safety
    ///
    /// May be dropped when the grace period is shortened; it is then called again.
    async fn kill_pod(
        &self,
        pod: Option<&Arc<Pod>>,
        running: &RuntimePod,
        grace_period: Option<Duration>,
    ) -> Result<()>;

    /// Removes dead containers, sandboxes and their logs (`GarbageCollect`), within `policy`. By default, it does
    /// nothing.
    async fn garbage_collect(&self, policy: &GcPolicy, pods: &dyn PodStateProvider) -> Result<()> {
        let _ = (policy, pods);
        Ok(())
    }

    /// Removes a container that has exited, and its logs (`DeleteContainer`). Idempotent. By default, this is left to
    /// [`garbage_collect`](Self::garbage_collect).
    async fn delete_container(&self, container: &ContainerId) -> Result<()> {
        let _ = container;
        Ok(())
    }

    /// The pod's current back-offs, for the record on disk; [`restore_back_offs`](Self::restore_back_offs) gets them
    /// after a restart of the agent. By default, none.
    fn back_offs(&self, uid: &PodUid) -> Vec<BackOff> {
        let _ = uid;
        Vec::new()
    }

    /// Restores the pod's back-offs after a restart of the agent. Called before the pod's first sync. Unknown ones are
    /// ignored.
    fn restore_back_offs(&self, uid: &PodUid, back_offs: Vec<BackOff>) {
        let _ = (uid, back_offs);
    }

    /// Why the pod cannot be resized in place from the resources of `allocated` to those of `desired`; `None` if only
    /// the node's capacity decides. By default, resizes are refused.
    fn refuses_resize(&self, desired: &Pod, allocated: &Pod) -> Option<ResizeRefusal> {
        let _ = (desired, allocated);
        Some(ResizeRefusal::unsupported())
    }

    /// Whether the pod's mounts can be read-only together with all mounts below them, as the status of the pod shows it
    /// (`runtimeClassSupportsRecursiveReadOnlyMounts`). Called before each sync. By default, `false`.
    fn has_recursive_read_only_mounts(&self, pod: &Pod) -> bool {
        let _ = pod;
        false
    }

    /// Whether a running container, or the pod as a whole, does not have the resources of its spec yet
    /// (`IsPodResizeInProgress`). Called before each sync. By default, `false`.
    fn is_pod_resize_in_progress(&self, pod: &Pod, status: &PodStatus) -> bool {
        let _ = (pod, status);
        false
    }

    /// The resources that the pod and its containers were given last, for the record on disk. By default, none.
    fn actuated_resources(&self, uid: &PodUid) -> Vec<ActuatedResources> {
        let _ = uid;
        Vec::new()
    }

    /// Restores those after a restart of the agent. Called before the pod's first sync, with an empty list if the earlier
    /// agent made a sandbox for the pod and gave nothing yet.
    fn restore_actuated_resources(&self, uid: &PodUid, actuated: Vec<ActuatedResources>) {
        let _ = (uid, actuated);
    }

    /// The pod is gone for good: drop its state in memory (back-offs, records). By default, it does nothing.
    fn forget_pod(&self, uid: &PodUid) {
        let _ = uid;
    }
}

/// Whether a runtime is ready (`container.RuntimeStatus`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Condition `RuntimeReady`, with a message if it is false.
    pub runtime_ready: Readiness,
    /// Condition `NetworkReady`, with a message if it is false. Pods on the host's network do not wait for it.
    pub network_ready: Readiness,
}

/// One condition of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Ready.
    #[default]
    Ready,
    /// Not ready, with the reason (`reason:… message:…` as the kubelet formats it).
    NotReady(String),
}

/// What garbage collection may remove (`container.GCPolicy`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// The minimum age of a dead container; `minimumContainerTTLDuration`, 0 by default.
    pub min_age: Duration,
    /// How many dead instances are kept per container; `maxPerPodContainerCount`, 1 by default.
    pub max_per_pod_container: Option<u32>,
    /// How many dead containers are kept in total; `maxContainerCount`, unlimited by default.
    pub max_containers: Option<u32>,
    /// All pod sources are ready: containers of unknown pods are garbage, too.
    pub all_sources_ready: bool,
    /// Under resource pressure: containers of pods that ended, but are not deleted, are garbage, too.
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

/// What garbage collection checks before it removes content of a pod (`kuberuntime.podStateProvider`).
pub trait PodStateProvider: Send + Sync {
    /// The pod has ended and is deleted or evicted: its dead containers may be removed (`ShouldPodContentBeRemoved`).
    fn should_pod_content_be_removed(&self, uid: &PodUid) -> bool;

    /// No container of the pod runs or will run: its sandboxes may be removed (`ShouldPodRuntimeBeRemoved`).
    fn should_pod_runtime_be_removed(&self, uid: &PodUid) -> bool;
}
