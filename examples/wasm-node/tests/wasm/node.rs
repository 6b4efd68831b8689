//! Pods: the runtime under a whole node.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubelet_agent::{AgentHandle, NodeAgent, Settings};
use kubelet_core::{PodExt as _, StreamSource};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Stage, until};

/// Runs a pod with this container until its status is as wanted.
async fn status(container: Value, wanted: impl Fn(&ContainerStatus) -> bool) -> ContainerStatus {
    let stage = Stage::new().await;
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "77"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }))
    .unwrap();
    let pod = Arc::new(pod);
    let source = StreamSource::new("mine", stream::iter([vec![pod.clone()]]).chain(stream::pending()));
    let settings = Settings::new(stage.dir.path().join("agent"));
    let agent =
        NodeAgent::builder(settings).containers(stage.wasm.clone()).source(source).build().await.unwrap();
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let running = tokio::spawn(agent.run(shutdown.clone()));
    let look = |handle: &AgentHandle| {
        let status = handle.status(&pod.uid())?.container_statuses.clone()?;
        status.into_iter().find(|status| wanted(status))
    };
    let status = until("the status", async || look(&handle)).await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
    stage.wasm.shutdown().await;
    status
}

#[tokio::test]
async fn an_image_that_is_not_there_is_an_error_of_the_pull() {
    let container = json!({"name": "main", "image": "file/missing.wat:v1"});
    let waits = |status: &ContainerStatus| {
        let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
        let waiting = waiting.filter(|waiting| waiting.reason.as_deref() == Some("ErrImagePull"));
        waiting.is_some_and(|waiting| waiting.message.as_deref().unwrap_or_default().contains("cannot read"))
    };
    status(container, waits).await;
}

#[tokio::test]
async fn the_status_has_the_end_and_its_message() {
    for (container, code, reason, message) in [
        (json!({"args": ["message"]}), 4, "Error", "it had enough"),
        (
            json!({"args": ["grows"], "resources": {"limits": {"memory": "8Mi"}}}),
            137,
            "OOMKilled",
            "its limit is 8388608",
        ),
    ] {
        let mut container = container;
        container["name"] = json!("main");
        container["image"] = json!("file/kit.wat");
        // An API server sets it.
        container["terminationMessagePath"] = json!("/dev/termination-log");
        let ended =
            |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.terminated.is_some());
        let status = status(container, ended).await;
        let ended = status.state.unwrap().terminated.unwrap();
        let said = ended.message.unwrap_or_default();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (code, Some(reason)), "{said}");
        assert!(said.contains(message), "{said}");
    }
}
