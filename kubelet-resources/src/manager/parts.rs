//! What the manager needs of the rest of the node.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use kubelet_core::{ContainerAdditions, KubeletHandle, PodExt, PodUid};

use crate::BoxError;
use crate::cpu_set::CpuSet;
use crate::decision::Share;
use crate::topology::HintSource;

/// The pods of the node. [`KubeletPods`] is that of a [`Kubelet`](kubelet_core::Kubelet).
///
/// A pod must be among all of them from the begin of its admission on: what a pod has that is not among
/// [`holding_pods`](Self::holding_pods) is freed. The managers list them while they hold their own locks, so no method may call a
/// manager.
pub trait NodePods: Send + Sync {
    /// Whether all sources have reported their pods (`SourcesReady`), and what else must be known before something is freed.
    fn sources_ready(&self) -> bool;

    /// The pods that have not ended (`ActivePodsFunc`).
    fn active_pods(&self) -> Vec<Arc<Pod>>;

    /// The pods that hold resources: those that have not ended, and those of which containers still run although they were removed by
    /// force or rejected. A pod without a spec holds the resources of all its containers: nobody knows which of them run. By default,
    /// those that have not ended.
    fn holding_pods(&self) -> Vec<Arc<Pod>> {
        self.active_pods()
    }

    /// All pods that the node knows, also those that have ended. By default, those that have not.
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.active_pods()
    }

    /// The pod's status for the API, with the ids and states of its containers (`PodStatusProvider`).
    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>>;
}

/// Changes the resources of running containers (`UpdateContainerResources` of the CRI).
#[async_trait]
pub trait ContainerUpdates: Send + Sync {
    /// Lets the container run on these CPUs only. `container_id` is that of the runtime, without the `containerd://` before it.
    ///
    /// # Errors
    ///
    /// If the runtime does not do it. The call is repeated in the next round.
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, the runtime may or may not have done it. It is repeated after the next start.
    async fn update_cpus(&self, container_id: &str, cpus: &CpuSet) -> Result<(), BoxError>;
}

/// Allocates a resource of containers through calls to plugins, e.g. devices.
///
/// For each share of a pod: the hints are taken, those of all parts are merged, then this part allocates with the merged hint, and
/// last the CPU and memory managers do. The calls for two pods never interleave.
#[async_trait]
pub trait PluginAllocator: HintSource {
    /// Allocates for the share, on the nodes of its hint if possible. A second call for the same container changes nothing. A call
    /// that hangs holds up all admissions: give it a time limit if the kubelet has one.
    ///
    /// # Errors
    ///
    /// The pod is rejected.
    ///
    /// # Cancel safety
    ///
    /// Dropped only when the agent stops. The plugin may then have allocated; it is called again after the restart.
    async fn allocate(&self, share: &Share) -> Result<(), BoxError>;

    /// The admission has ended, well or not: the pod is active now, or what it has may be freed. By default, does nothing.
    fn admission_ended(&self) {}

    /// What the container needs to use what was allocated (`GetResources`). Called before each start of it. By default nothing.
    ///
    /// # Errors
    ///
    /// The container waits with the error's text, and is tried again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn additions(&self, pod: &Pod, container: &Container) -> Result<ContainerAdditions, BoxError> {
        let _ = (pod, container);
        Ok(ContainerAdditions::default())
    }

    /// Frees what pods have that are neither `admitting` nor among `active`. Called before each admission, once all sources have
    /// reported their pods.
    fn remove_stale(&self, admitting: &Arc<Pod>, active: &[Arc<Pod>]);
}

/// The pods of a [`Kubelet`](kubelet_core::Kubelet).
#[derive(Clone)]
pub struct KubeletPods {
    kubelet: KubeletHandle,
}

impl KubeletPods {
    /// The pods of this agent.
    pub fn new(kubelet: KubeletHandle) -> Self {
        Self { kubelet }
    }

    /// A pod with this UID, and the containers that the runtime has of it. It has no spec if its status could not be read.
    fn running_pod(&self, uid: &PodUid) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_string());
        let named = |name: &str| Container {
            name: name.to_owned(),
            ..Container::default()
        };
        let status = self.kubelet.cache().get(uid).ok();
        // The status of a pod that runs is empty only if it was not read yet.
        let status = status.filter(|status| !status.containers.is_empty() || !status.sandboxes.is_empty());
        pod.spec = status.map(|status| PodSpec {
            containers: status
                .containers
                .iter()
                .map(|container| named(&container.name))
                .collect(),
            ..PodSpec::default()
        });
        pod
    }
}

impl NodePods for KubeletPods {
    /// Also the runtime must have listed its pods: they may hold something.
    fn sources_ready(&self) -> bool {
        self.kubelet.sources().all_ready() && self.kubelet.cache().was_listed()
    }

    fn active_pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.active_pods()
    }

    /// Of a pod that only the runtime knows, it has the UID and the names of containers. The kubelet leaves out the pods that are not
    /// active (`GetActivePods`).
    fn holding_pods(&self) -> Vec<Arc<Pod>> {
        let workers = self.kubelet.workers();
        let mut holding = self.kubelet.active_pods();
        let mut known: HashSet<PodUid> = holding.iter().map(|pod| pod.uid()).collect();
        let terminating = workers.terminating_pods();
        holding.extend(terminating.into_iter().filter(|pod| known.insert(pod.uid())));
        // The cache may list a pod for a moment after its worker has ended it.
        let may_run = |uid: &PodUid| !workers.is_pod_known_terminated(uid);
        let running = self
            .kubelet
            .cache()
            .running_pods()
            .into_iter()
            .map(|(uid, _)| uid);
        let unknown = running.filter(|uid| !known.contains(uid) && may_run(uid));
        holding.extend(unknown.map(|uid| Arc::new(self.running_pod(&uid))));
        holding
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.kubelet.pods().pods()
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.kubelet.pod_status(uid)
    }
}
