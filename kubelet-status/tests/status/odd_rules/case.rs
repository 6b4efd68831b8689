//! One pod, what its runtime says of it, and what was said before.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus, SyncFailure};
use kubelet_core::{ContainerId, Eviction, PodExt, PodStatusInput};
use kubelet_status::{NodeFacts, generate_api_pod_status};
use serde_json::{Value, json};

pub(crate) struct Case {
    pub(crate) pod: Arc<Pod>,
    pub(crate) runtime: PodStatus,
    pub(crate) previous: ApiPodStatus,
    pub(crate) node: NodeFacts,
    pub(crate) eviction: Option<Eviction>,
    pub(crate) recursive_read_only: bool,
    pub(crate) start_failures: BTreeMap<String, SyncFailure>,
}

impl Case {
    pub(crate) fn new(pod: Value) -> Self {
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
        Self {
            runtime: PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now()),
            pod,
            previous: ApiPodStatus::default(),
            node: NodeFacts::default(),
            eviction: None,
            recursive_read_only: false,
            start_failures: BTreeMap::new(),
        }
    }

    pub(crate) fn previous(mut self, previous: Value) -> Self {
        self.previous = serde_json::from_value(previous).unwrap();
        self
    }

    pub(crate) fn container(mut self, id: &str, name: &str, state: ContainerState, exit_code: i32) -> Self {
        let mut status = ContainerStatus::new(ContainerId::new("fake", id), name, state);
        status.exit_code = exit_code;
        status.created_at = Some(Timestamp::UNIX_EPOCH);
        self.runtime.containers.push(status);
        self
    }

    pub(crate) fn generate(&self) -> Value {
        let mut input = PodStatusInput::new(&self.pod, &self.runtime);
        input.eviction = self.eviction.as_ref();
        input.recursive_read_only = self.recursive_read_only;
        input.start_failures = Some(&self.start_failures);
        json!(generate_api_pod_status(
            &input,
            &self.previous,
            &self.node,
            Timestamp::UNIX_EPOCH
        ))
    }
}

pub(crate) fn one_container(policy: &str) -> Value {
    json!({"metadata": {"uid": "u"}, "spec": {"restartPolicy": policy, "containers": [{"name": "a", "image": "i"}]}})
}

pub(crate) fn reported(state: Value, restart_count: i32) -> Value {
    json!({"name": "a", "image": "i", "imageID": "i", "containerID": "fake://old", "ready": true,
        "restartCount": restart_count, "state": state, "lastState": {}})
}

pub(crate) fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let all = status["conditions"].as_array().unwrap();
    all.iter()
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}
