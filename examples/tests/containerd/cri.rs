//! Direct calls to containerd, without the agent.

use std::collections::{BTreeMap, BTreeSet};

use kubelet_cri::v1::{
    Container, ContainerFilter, ContainerStatusRequest, ListContainersRequest, ListPodSandboxRequest,
    PodSandbox, PodSandboxFilter, PodSandboxStatus, PodSandboxStatusRequest,
};
use kubelet_cri::{Code, CriClient, Error as CriError, RuntimeService};
use kubelet_testing::Containerd;
use serde_json::Value;

/// The label of a pod's sandboxes and containers.
const POD_UID: &str = "io.kubernetes.pod.uid";

/// A containerd, as a test sees it.
pub(crate) struct Cri<'a> {
    containerd: &'a Containerd,
    client: CriClient,
}

impl<'a> Cri<'a> {
    pub(crate) async fn of(containerd: &'a Containerd) -> Self {
        let client = CriClient::connect(containerd.endpoint()).await.unwrap();
        Self { containerd, client }
    }

    pub(crate) async fn sandboxes(&self, uid: &str) -> Vec<PodSandbox> {
        let label_selector = [(POD_UID.to_owned(), uid.to_owned())].into();
        let filter = Some(PodSandboxFilter { label_selector, ..Default::default() });
        self.client.list_pod_sandbox(ListPodSandboxRequest { filter }).await.unwrap().items
    }

    /// All containers of a pod, ended ones too.
    pub(crate) async fn containers(&self, uid: &str) -> Vec<Container> {
        let label_selector = [(POD_UID.to_owned(), uid.to_owned())].into();
        let filter = Some(ContainerFilter { label_selector, ..Default::default() });
        self.client.list_containers(ListContainersRequest { filter }).await.unwrap().containers
    }

    /// The ids of all containers of a pod, ended ones too, and of its sandboxes.
    pub(crate) async fn ids(&self, uid: &str) -> BTreeSet<String> {
        let containers = self.containers(uid).await.into_iter().map(|container| container.id);
        containers.chain(self.sandboxes(uid).await.into_iter().map(|sandbox| sandbox.id)).collect()
    }

    /// The processes of a pod's running containers, by container. Each must run once.
    pub(crate) async fn running(&self, uid: &str) -> BTreeMap<String, i32> {
        let containers = self.containers(uid).await;
        let mut running = BTreeMap::new();
        for task in self.containerd.tasks().await.unwrap() {
            // The tasks of sandboxes and of other pods are no containers of this one.
            let container = containers.iter().find(|container| container.id == task.id);
            if let Some(metadata) = container.and_then(|container| container.metadata.as_ref())
                && task.status == "RUNNING"
            {
                let before = running.insert(metadata.name.clone(), task.pid.cast_signed());
                assert_eq!(before, None, "{} of {uid} runs twice", metadata.name);
            }
        }
        running
    }

    /// A sandbox's status, and the config that it was made with.
    pub(crate) async fn sandbox_status(&self, id: &str) -> (PodSandboxStatus, Value) {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let response = self.client.pod_sandbox_status(request).await.unwrap();
        (response.status.unwrap(), config(&response.info["info"]))
    }

    /// The config that a container was made with, if it is there yet.
    pub(crate) async fn container_config(&self, id: &str) -> Option<Value> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        match self.client.container_status(request).await {
            Err(CriError::Call { code: Code::NotFound, .. }) => None,
            response => Some(config(&response.unwrap().info["info"])),
        }
    }
}

/// containerd returns it in verbose responses.
fn config(info: &str) -> Value {
    serde_json::from_str::<Value>(info).unwrap()["config"].take()
}
