//! What the resource managers need of the container runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::labels::{CONTAINER_NAME, POD_UID};
use kubelet_cri::{RuntimeService, v1};
use kubelet_resources::{BoxError, ContainerUpdates, CpuSet};

/// Changes containers through CRI.
pub(super) struct CriUpdates {
    runtime: Arc<dyn RuntimeService>,
}

impl CriUpdates {
    pub(super) fn new(runtime: Arc<dyn RuntimeService>) -> Self {
        Self { runtime }
    }
}

#[async_trait]
impl ContainerUpdates for CriUpdates {
    async fn update_cpus(&self, container_id: &str, cpus: &CpuSet) -> Result<(), BoxError> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: container_id.to_owned(),
            linux: Some(v1::LinuxContainerResources {
                cpuset_cpus: cpus.to_string(),
                ..Default::default()
            }),
            ..Default::default()
        };
        self.runtime.update_container_resources(request).await?;
        Ok(())
    }
}

/// The containers that the runtime has when the agent starts (`buildContainerMapAndRunningSetFromRuntime`).
#[derive(Default)]
pub(super) struct ContainersAtStart {
    /// The pod's UID and the container's name, by id.
    pub(super) names: BTreeMap<String, (String, String)>,
    /// The pod's UID and the container's name, of those that run.
    pub(super) running: BTreeSet<(String, String)>,
}

pub(super) async fn containers_at_start(runtime: &dyn RuntimeService) -> ContainersAtStart {
    let listed = runtime
        .list_containers(v1::ListContainersRequest::default())
        .await;
    let containers = match listed {
        Ok(listed) => listed.containers,
        Err(error) => {
            tracing::error!(%error, "cannot list the containers that run already");
            return ContainersAtStart::default();
        }
    };
    let mut at_start = ContainersAtStart::default();
    for container in containers {
        let label = |name| container.labels.get(name).cloned();
        let (Some(uid), Some(name)) = (label(POD_UID), label(CONTAINER_NAME)) else {
            continue;
        };
        if container.state() == v1::ContainerState::ContainerRunning {
            at_start.running.insert((uid.clone(), name.clone()));
        }
        at_start.names.insert(container.id, (uid, name));
    }
    at_start
}
