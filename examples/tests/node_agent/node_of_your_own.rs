//! The program `node-of-your-own`: a kubelet with a runtime of its own, joined to a cluster.

use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube_client::Api;
use kube_client::api::{ListParams, PostParams};
use kubelet_testing::ApiServer;
use kubelet_testing::api_server::find_kubectl;
use rustix::process::Signal;
use serde_json::json;

use super::cluster::{Cluster, NODE, condition};
use super::pods::pod;
use crate::standalone::{Agent, until};

/// Binds the pods without a node to a node that is ready.
async fn schedule(server: &ApiServer) {
    let ready = |node: &Node| condition(node, "Ready").as_deref() == Some("True");
    let nodes = Api::<Node>::all(server.client()).list(&ListParams::default()).await.unwrap();
    let node = nodes.into_iter().find(ready).expect("a node is ready").metadata.name;
    let pods = Api::<Pod>::namespaced(server.client(), "default");
    for pod in pods.list(&ListParams::default().fields("spec.nodeName=")).await.unwrap() {
        let name = pod.metadata.name.unwrap();
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        let binding: Binding = serde_json::from_value(binding).unwrap();
        let _: serde_json::Value =
            pods.create_subresource("binding", &name, &PostParams::default(), &binding).await.unwrap();
    }
}

#[tokio::test]
async fn a_runtime_of_ones_own_serves_a_cluster() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let unused = "unix:///nowhere.sock".to_owned();
    let cluster = Cluster::secure_on(tempfile::tempdir().unwrap(), unused).await;
    let mut command = cluster.command_of("node-of-your-own", "");
    let mut agent = Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    let node = cluster.node_is_ready().await;
    let runtime = node.status.unwrap().node_info.unwrap().container_runtime_version;
    assert!(runtime.starts_with("pretend://"), "{runtime}");

    // A scheduler finds the node.
    let probe =
        |command: &str| json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1});
    for (name, probed) in [("talks", "true"), ("fails", "false")] {
        let mut pod = pod(name, "true", json!({"nodeName": null}));
        let container = &mut pod.spec.as_mut().unwrap().containers[0];
        container.readiness_probe = serde_json::from_value(probe("true")).unwrap();
        container.liveness_probe = serde_json::from_value(probe(probed)).unwrap();
        cluster.create(&pod);
    }
    schedule(&cluster.server).await;
    let talks = cluster.ready("talks").await;
    assert_eq!(talks.spec.unwrap().node_name.as_deref(), Some(NODE));

    // Logs, and commands in containers.
    let log = cluster.kubectl(&kubectl, &["logs", "talks"]).await;
    assert!(log.ends_with("pretends to run"), "{log}");
    let said = cluster.kubectl(&kubectl, &["exec", "talks", "--", "echo", "hello"]).await;
    assert_eq!(said, r#"["echo", "hello"]"#);

    // A container that fails its probe is restarted.
    let restarted = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        statuses.into_iter().flatten().any(|container| container.restart_count > 0)
    };
    cluster.pod("fails", "is restarted", restarted).await;
    cluster.event("fails", "Unhealthy", "Liveness probe failed").await;

    for name in ["talks", "fails"] {
        cluster.kubectl(&kubectl, &["delete", "pod", name, "--timeout=100s", "--grace-period=1"]).await;
    }
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    let unlocked = async || cluster.server.list::<Pod>().unwrap().is_empty().then_some(());
    until("no pod is left", unlocked).await;
    cluster.end().await;
}
