//! Gives running containers the CPUs that they should have.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kubelet_core::PodExt;

use super::handle::Shared;
use super::parts::{ContainerUpdates, NodePods};
use crate::cpu_set::CpuSet;

impl Shared {
    /// Frees what pods have that are gone, and updates the containers whose CPUs changed (`reconcileState`).
    pub(super) async fn reconcile(&self, updates: &dyn ContainerUpdates) {
        let Some(pods) = self.pods() else { return };
        if pods.sources_ready() {
            self.remove_stale(pods.as_ref());
        }
        // Also what could not be written before.
        self.write_state().await;
        for pod in pods.active_pods() {
            let Some(status) = pods.pod_status(&pod.uid()) else {
                tracing::debug!(pod = %pod.key(), "no status, its CPUs are checked later");
                continue;
            };
            self.reconcile_pod(&pod, &status, updates).await;
        }
    }

    fn remove_stale(&self, pods: &dyn NodePods) {
        let active = {
            let mut allocator = self.allocator.lock();
            // The list is made under the lock: no pod is admitted between it and its use.
            let active = pods.holding_pods();
            allocator.remove_stale(&active);
            active
        };
        let mut given = self.given.lock();
        let active: HashSet<&str> = active.iter().map(|pod| pod.uid_str()).collect();
        given.retain(|uid, _| active.contains(uid.as_str()));
    }

    async fn reconcile_pod(&self, pod: &Arc<Pod>, status: &PodStatus, updates: &dyn ContainerUpdates) {
        let names: Vec<&str> = pod
            .all_containers()
            .map(|container| container.name.as_str())
            .collect();
        for name in names {
            let Some(id) = running_container(status, name) else {
                continue;
            };
            let wanted = self
                .allocator
                .lock()
                .cpu_state()
                .cpus(pod.uid_str(), name)
                .clone();
            if wanted.is_empty() || self.has(pod.uid_str(), name, &wanted) {
                continue;
            }
            match updates.update_cpus(id, &wanted).await {
                Ok(()) => self.was_given(pod.uid_str(), name, wanted),
                Err(error) => {
                    // It may have been done. If the former CPUs are wanted next, it is updated all the same.
                    self.forget_given(pod.uid_str(), name);
                    tracing::error!(pod = %pod.key(), container = name, id, cpus = %wanted, %error, "failed to update container");
                }
            }
        }
    }

    fn has(&self, pod_uid: &str, container: &str, cpus: &CpuSet) -> bool {
        let given = self.given.lock();
        let of_container = given.get(pod_uid).and_then(|of_pod| of_pod.get(container));
        of_container == Some(cpus)
    }
}

/// The id of the container if it runs. One that has ended may be restarted, and keeps its CPUs.
fn running_container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a str> {
    let init = status.init_container_statuses.iter().flatten();
    let app = status.container_statuses.iter().flatten();
    let of_name = |status: &&ContainerStatus| status.name == name;
    let status = init.chain(app).find(of_name)?;
    let state = status.state.as_ref()?;
    state.running.as_ref()?;
    if state.waiting.is_some() || state.terminated.is_some() {
        return None;
    }
    let (_, id) = status.container_id.as_deref()?.split_once("://")?;
    Some(id)
}
