//! Static pods and their mirror pods: an agent of this project on an API server in memory.
mod agent;
mod kubectl;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kubelet_core::{PodExt, annotations};
use kubelet_testing::eventually;
use serde_json::json;
use tokio::time::Instant;

use self::agent::{Agent, node, static_pod};

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_shown_by_a_mirror_while_it_is_there() {
    let agent = Agent::start().await;
    agent.manifests.send_replace(vec![static_pod("one")]);
    let first = agent.mirror_of("one").await;
    let owners = first.metadata.owner_references.clone().unwrap();
    let node: Node = Api::all(agent.server.client()).get("node-1").await.unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (&*owners[0].kind, Some(&owners[0].uid)),
        ("Node", node.metadata.uid.as_ref())
    );
    assert_ne!(first.uid_str(), "uid-of-one", "the mirror has a UID of its own");

    // A deleted mirror pod is created again at once.
    let now = DeleteParams::default().grace_period(0);
    agent.pods().delete("web", &now).await.unwrap();
    let second = agent.mirror_of("one").await;
    assert_ne!(second.uid_str(), first.uid_str());

    // A mirror pod that is deleted with a grace period is deleted for good and created again.
    agent
        .pods()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let again = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid_str() != second.uid_str());
    agent.until("a mirror that is not being deleted", again).await;

    // The manifest changes.
    agent.manifests.send_replace(vec![static_pod("two")]);
    agent.mirror_of("two").await;

    // The manifest is removed, and so is the mirror pod.
    agent.manifests.send_replace(vec![]);
    agent.until("no mirror", |pod| pod.is_none()).await;
    agent.stop().await;
}

/// Its first sync was before, and the next one is a minute later.
#[tokio::test(start_paused = true)]
async fn a_static_pod_gets_its_mirror_as_soon_as_the_node_is_registered() {
    let agent = Agent::start_unregistered(Agent::virtual_clock()).await;
    agent.manifests.send_replace(vec![static_pod("one")]);
    eventually!(
        agent.containers.containers(),
        |containers| !containers.is_empty(),
        "it runs without a mirror"
    );
    agent.register().await;
    let registered = Instant::now();
    agent.mirror_of("one").await;
    let after = registered.elapsed();
    assert!(after < Duration::from_secs(20), "{after:?}");
    agent.stop().await;
}

/// Its worker has already ended.
#[tokio::test(start_paused = true)]
async fn a_static_pod_that_has_ended_is_shown_by_a_mirror() {
    let agent = Agent::start().await;
    let mut runs_once = Pod::clone(&static_pod("one"));
    runs_once.spec.get_or_insert_default().restart_policy = Some("Never".to_owned());
    agent.manifests.send_replace(vec![Arc::new(runs_once)]);
    agent.mirror_of("one").await;
    agent.containers.end(&"uid-of-one".into(), "main", 0);
    let has_ended = |pod: Option<&Pod>| pod.and_then(phase) == Some("Succeeded");
    agent.until("its end", has_ended).await;

    let now = DeleteParams::default().grace_period(0);
    agent.pods().delete("web", &now).await.unwrap();
    let again = agent.until("a mirror that tells of its end", has_ended).await;

    // The next pod with the name is rejected, because there is no other CPU.
    let mut asks_too_much = Pod::clone(&static_pod("two"));
    let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}});
    asks_too_much.spec.get_or_insert_default().containers[0].resources =
        serde_json::from_value(resources).unwrap();
    agent.manifests.send_replace(vec![Arc::new(asks_too_much)]);
    let reason = |pod: &Pod| pod.status.as_ref()?.reason.clone();
    let turned_away = |pod: Option<&Pod>| {
        let why = pod.and_then(reason);
        pod.and_then(phase) == Some("Failed") && why.as_deref() == Some("UnexpectedAdmissionError")
    };
    let shown = agent.until("a mirror that says so", turned_away).await.unwrap();
    assert_ne!(shown.uid_str(), again.unwrap().uid_str());
    assert_eq!(shown.annotation(annotations::CONFIG_MIRROR), Some("two"));
    agent.manifests.send_replace(vec![]);
    agent.until("no mirror", |pod| pod.is_none()).await;
    agent.stop().await;
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_left_behind_is_deleted() {
    let agent = Agent::start().await;
    agent.manifests.send_replace(vec![static_pod("one")]);
    let left = agent.mirror_of("one").await;
    agent.manifests.send_replace(vec![]);
    agent.until("no mirror", |pod| pod.is_none()).await;
    // As if left by an earlier agent that stopped before it deleted it.
    let mut left = left.clone();
    left.metadata.resource_version = None;
    left.metadata.uid = None;
    left.status = None;
    agent.pods().create(&PostParams::default(), &left).await.unwrap();
    agent.until("no mirror", |pod| pod.is_none()).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_its_node_there_is_no_mirror() {
    let agent = Agent::start().await;
    let nodes: Api<Node> = Api::all(agent.server.client());
    nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    agent.manifests.send_replace(vec![static_pod("one")]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(agent.pods().get_opt("web").await.unwrap().is_none());

    nodes.create(&PostParams::default(), &node()).await.unwrap();
    agent.mirror_of("one").await;
    agent.stop().await;
}

/// A source sends the pod with its original `resourceVersion`, so the version does not show the change.
#[tokio::test(start_paused = true)]
async fn what_somebody_else_writes_into_a_status_is_put_right() {
    let runs = |pod: Option<&Pod>| pod.and_then(phase) == Some("Running");
    for is_static in [true, false] {
        let agent = Agent::start().await;
        let mut pod = Pod::clone(&static_pod("one"));
        if is_static {
            agent.manifests.send_replace(vec![Arc::new(pod)]);
        } else {
            pod.metadata.uid = None;
            pod.metadata.annotations = None;
            pod.spec.get_or_insert_default().automount_service_account_token = Some(false);
            agent.pods().create(&PostParams::default(), &pod).await.unwrap();
        }
        agent.until("it runs", runs).await;
        for _ in 0..3 {
            let other = Patch::Merge(json!({"status": {"phase": "Pending", "message": "somebody else's"}}));
            let params = PatchParams::default();
            let patched = agent.pods().patch_status("web", &params, &other).await;
            assert_eq!(phase(&patched.unwrap()), Some("Pending"));
            let put_right = agent.until("it runs again", runs).await.unwrap();
            assert_eq!(put_right.status.unwrap().message, None);
        }
        agent.stop().await;
    }
}
