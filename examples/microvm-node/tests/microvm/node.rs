//! Pods: the runtime under a whole node.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_agent::{AgentHandle, NodeAgent, Settings};
use kubelet_core::{PodExt as _, StreamSource};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{ECHO, INIT, Stage, until};

/// A node that runs one pod.
struct Node {
    pod: Arc<Pod>,
    handle: AgentHandle,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Node {
    async fn new(stage: &Stage, spec: Value) -> Self {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "uid"},
            "spec": spec,
        }))
        .unwrap();
        let pod = Arc::new(pod);
        let source = StreamSource::new("mine", stream::iter([vec![pod.clone()]]).chain(stream::pending()));
        let settings = Settings::new(stage.dir.path().join("agent"));
        let agent =
            NodeAgent::builder(settings).containers(stage.vms.clone()).source(source).build().await.unwrap();
        let (handle, shutdown) = (agent.handle(), CancellationToken::new());
        let running = agent.run(shutdown.clone());
        Self { pod, handle, shutdown, running: tokio::spawn(async move { running.await.unwrap() }) }
    }

    async fn status(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let look = || {
            let status: PodStatus = self.handle.status(&self.pod.uid())?.as_ref().clone();
            let status = serde_json::to_value(status).unwrap();
            wanted(&status).then_some(status)
        };
        until("the status", async || look()).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap();
    }
}

#[tokio::test]
async fn init_containers_are_vms_one_after_the_other() {
    let stage = Stage::new(INIT).await;
    let container =
        |name: &str, script: &str| json!({"name": name, "image": "guest", "command": ["sh", "-c", script]});
    let node = Node::new(
        &stage,
        json!({
            "restartPolicy": "Never",
            "initContainers": [container("one", "true"), container("two", "true")],
            "containers": [container("main", "exit 3")],
        }),
    )
    .await;
    let status = node.status(|status| status["phase"] == "Failed").await;
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
    node.stop().await;
    stage.vms.shutdown().await;
}

#[tokio::test]
async fn a_pod_whose_engine_dies_begins_anew() {
    let stage = Stage::new(ECHO).await;
    let node =
        Node::new(&stage, json!({"containers": [{"name": "main", "image": "guest", "stdin": true}]})).await;
    let status = node.status(|status| status["containerStatuses"][0]["ready"] == true).await;
    assert_eq!(status["podIP"], "127.88.0.2");
    stage.kill_engine().await;
    node.status(|status| {
        let main = &status["containerStatuses"][0];
        main["restartCount"] == 1 && main["state"]["running"].is_object()
    })
    .await;
    assert_eq!(stage.pods().await, [1]);
    node.stop().await;
    stage.vms.shutdown().await;
}

#[tokio::test]
async fn a_pod_goes_on_while_the_agent_restarts() {
    let mut stage = Stage::new(ECHO).await;
    let spec = json!({"containers": [{"name": "main", "image": "guest"}]});
    let node = Node::new(&stage, spec.clone()).await;
    let ready = |status: &Value| status["containerStatuses"][0]["ready"] == true;
    let before = node.status(ready).await;
    node.stop().await;
    stage.restart().await;
    let node = Node::new(&stage, spec).await;
    let after = node.status(ready).await;
    let main = |status: &Value| status["containerStatuses"][0].clone();
    assert_eq!(main(&after)["containerID"], main(&before)["containerID"]);
    assert_eq!(main(&after)["restartCount"], 0);
    node.stop().await;
    stage.vms.shutdown().await;
}
