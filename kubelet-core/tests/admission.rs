//! Who may run on a node that has little to give, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod rig;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{FixedNode, KubeletBuilder};
use rig::{Node, Pods, pod};
use serde_json::json;

/// A node with room for two pods, one CPU and a label.
fn small(builder: KubeletBuilder) -> KubeletBuilder {
    let node = json!({
        "metadata": {"name": "node-1", "labels": {"zone": "a"}},
        "status": {"allocatable": {"pods": "2", "cpu": "1"}},
    });
    builder.node(Arc::new(FixedNode::new(Arc::new(
        serde_json::from_value(node).unwrap(),
    ))))
}

fn created(uid: &str, second: i64) -> Pod {
    let mut pod = pod(uid);
    pod.metadata.creation_timestamp = Some(kubelet_core::clock::api_time(Timestamp::constant(second, 0)));
    pod
}

fn asking(mut pod: Pod, cpu: &str, priority: i32) -> Arc<Pod> {
    let spec = pod.spec.as_mut().unwrap();
    let requests = json!({"requests": {"cpu": cpu}});
    spec.containers[0].resources = Some(serde_json::from_value(requests).unwrap());
    spec.priority = Some(priority);
    Arc::new(pod)
}

#[tokio::test(start_paused = true)]
async fn older_pods_are_admitted_first_and_who_is_rejected_has_failed_for_good() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let pods = [created("c", 3), created("a", 1), created("b", 2)];
    api.send(pods.into_iter().map(Arc::new).collect()).unwrap();
    node.wait_for_phase("a", "Running").await;
    node.wait_for_phase("b", "Running").await;
    node.wait_for_phase("c", "Failed").await;
    let status = node.status("c");
    assert_eq!(status.reason.as_deref(), Some("OutOfpods"));
    let message =
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2";
    assert_eq!(status.message.as_deref(), Some(message));
    assert!(status.container_statuses.is_none());
    node.events.wait_for("OutOfpods").await;

    // Room is made: that is too late for it, whatever its source says of it again.
    let mut told = created("c", 3);
    told.status = Some(status);
    api.send(vec![Arc::new(created("b", 2)), Arc::new(told)]).unwrap();
    node.runtime.wait_for("forgot a").await;
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert!(!node.runtime.did("started c"));
    let status = node.status("c");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert!(status.container_statuses.is_none());
    assert!(status.conditions.unwrap_or_default().is_empty());

    // Another one of its kind fits now.
    api.send(vec![Arc::new(created("b", 2)), Arc::new(created("d", 4))])
        .unwrap();
    node.wait_for_phase("d", "Running").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_that_is_deleted_is_finished() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let mut far = pod("far");
    far.spec.as_mut().unwrap().node_selector = Some([("zone".into(), "b".into())].into());
    api.send(vec![Arc::new(far.clone())]).unwrap();
    node.wait_for_phase("far", "Failed").await;
    assert_eq!(node.status("far").reason.as_deref(), Some("NodeAffinity"));
    far.status = Some(node.status("far"));
    far.metadata.deletion_timestamp = Some(kubelet_core::clock::api_time(Timestamp::UNIX_EPOCH));
    far.metadata.deletion_grace_period_seconds = Some(0);
    api.send(vec![Arc::new(far)]).unwrap();
    let finished = async {
        while !node.handle.workers().is_pod_known_terminated(&"far".into()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
    assert!(!node.runtime.did("started far"));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_gets_the_room_of_one_that_matters_less() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let low = asking(created("low", 1), "800m", 0);
    api.send(vec![low.clone()]).unwrap();
    node.wait_for_phase("low", "Running").await;

    // Not for one that matters no more.
    let same = asking(created("same", 2), "500m", 0);
    api.send(vec![low.clone(), same.clone()]).unwrap();
    node.wait_for_phase("same", "Failed").await;
    assert_eq!(node.status("same").reason.as_deref(), Some("OutOfcpu"));

    let critical = asking(created("critical", 3), "500m", 2_000_000_000);
    api.send(vec![low, same, critical]).unwrap();
    node.runtime.wait_for("killed low in 7").await;
    node.wait_for_phase("critical", "Running").await;
    node.wait_for_phase("low", "Failed").await;
    let status = node.status("low");
    assert_eq!(status.reason.as_deref(), Some("Preempting"));
    assert_eq!(
        status.message.as_deref(),
        Some("Preempted in order to admit critical pod")
    );
    let condition = status
        .conditions
        .unwrap()
        .into_iter()
        .find(|it| it.type_ == "DisruptionTarget");
    assert_eq!(condition.unwrap().reason.as_deref(), Some("TerminationByKubelet"));
    node.events.wait_for("Preempting").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_will_not_end_does_not_hold_the_node() {
    let (node, [api]) = Node::start_with(Pods::default(), ["api"], small);
    let low = asking(created("low", 1), "800m", 0);
    api.send(vec![low.clone()]).unwrap();
    node.wait_for_phase("low", "Running").await;
    node.runtime.kill_hangs.send_replace(true);
    let critical = asking(created("critical", 3), "500m", 2_000_000_000);
    api.send(vec![low, critical]).unwrap();
    node.events.wait_for("ExceededGracePeriod").await;
    node.wait_for_phase("critical", "Running").await;
    node.runtime.kill_hangs.send_replace(false);
    node.runtime.wait_for("killed low in 7").await;
    node.stop().await;
}
