//! Resizes of running containers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::Runtime;
use kubelet_core::runtime::{PodStatus, SyncAction};
use serde_json::{Value, json};

use crate::rig::{Rig, pod};

fn container(name: &str, cpu: &str, memory: &str, policy: Value) -> Value {
    let list = json!({ "cpu": cpu, "memory": memory });
    json!({
        "name": name,
        "image": "i",
        "imagePullPolicy": "IfNotPresent",
        "resources": { "requests": list, "limits": list },
        "resizePolicy": policy,
    })
}

fn two(a: [&str; 2], b: [&str; 2], policy_of_b: Value) -> Arc<Pod> {
    let containers = [
        container("a", a[0], a[1], json!([])),
        container("b", b[0], b[1], policy_of_b),
    ];
    pod("p", json!({ "containers": containers }))
}

#[tokio::test(start_paused = true)]
async fn memory_comes_before_cpu_and_less_before_more() {
    let rig = Rig::new().await;
    rig.sync_ok(&two(["1", "1000"], ["1", "1000"], json!([]))).await;
    rig.fake.take_calls();
    let resized = two(["2", "2000"], ["500m", "800"], json!([]));
    rig.sync_ok(&resized).await;
    let expected = [
        "UpdateContainerResources b cpu 1024/100000 memory 800",
        "UpdateContainerResources a cpu 1024/100000 memory 2000",
        "UpdateContainerResources b cpu 512/50000 memory 800",
        "UpdateContainerResources a cpu 2048/200000 memory 2000",
    ];
    assert_eq!(rig.fake.take_calls(), expected);
    rig.sync_ok(&resized).await;
    assert!(rig.fake.take_calls().is_empty(), "it is done");
}

#[tokio::test(start_paused = true)]
async fn the_status_has_the_memory_request_that_was_given() {
    let rig = Rig::new().await;
    let requests = |status: &PodStatus| {
        ["a", "b"].map(|name| {
            let container = status.containers.iter().find(|container| container.name == name);
            let resources = container.unwrap().resources.clone().unwrap();
            resources.memory_request.unwrap().0
        })
    };
    let first = two(["1", "1000"], ["1", "1000"], json!([]));
    rig.sync_ok(&first).await;
    assert_eq!(requests(&*rig.status(&first).await), ["1000", "1000"]);
    let resized = two(["1", "2000"], ["1", "1000"], json!([]));
    rig.sync_ok(&resized).await;
    assert_eq!(requests(&*rig.status(&resized).await), ["2000", "1000"]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_told_and_tried_again() {
    let rig = Rig::new().await;
    rig.sync_ok(&two(["1", "1000"], ["1", "1000"], json!([]))).await;
    rig.fake.take_calls();
    let resized = two(["2", "1000"], ["2", "1000"], json!([]));
    rig.fake.fail_next("UpdateContainerResources");
    let result = rig.sync(&resized).await;
    let failure = result.results[0].failure.as_ref().unwrap();
    assert_eq!(result.results[0].action, SyncAction::ResizePodInPlace);
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        (
            "ResizePodInPlaceError",
            "rpc error: code = Internal desc = broken"
        )
    );
    rig.sync_ok(&resized).await;
    assert_eq!(rig.fake.take_calls().len(), 2);

    // Each uses 500 bytes.
    let result = rig.sync(&two(["2", "400"], ["2", "700"], json!([]))).await;
    assert_eq!(
        result.results[0].failure.as_ref().unwrap().message,
        "cannot decrease memory limits: attempting to set container \"a\" memory limit (400) below current usage (500)"
    );
    assert!(rig.fake.take_calls().is_empty(), "neither is changed");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_resized_in_place_starts_again() {
    let rig = Rig::new().await;
    let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    rig.sync_ok(&two(["1", "1000"], ["1", "1000"], policy.clone()))
        .await;
    rig.fake.take_calls();
    let resized = two(["1", "1000"], ["1", "2000"], policy);
    rig.sync_ok(&resized).await;
    let calls = rig.fake.take_calls();
    assert_eq!(
        calls,
        [
            "StopContainer b 2",
            "stopped b",
            "CreateContainer b 1",
            "StartContainer b"
        ]
    );
    let events = rig.events.take();
    assert!(
        events.contains(&"Killing spec.containers{b}: Container b resize requires restart".to_owned()),
        "{events:?}"
    );
    rig.sync_ok(&resized).await;
    assert!(rig.fake.take_calls().is_empty(), "it is done");
}

#[tokio::test(start_paused = true)]
async fn the_next_agent_changes_nothing_that_runs() {
    let mut rig = Rig::new().await;
    let first = two(["1", "1000"], ["1", "1000"], json!([]));
    rig.sync_ok(&first).await;
    rig.restart().await;
    rig.fake.take_calls();
    rig.sync_ok(&first).await;
    assert!(rig.fake.take_calls().is_empty());
    rig.sync_ok(&two(["2", "1000"], ["1", "1000"], json!([]))).await;
    assert_eq!(rig.fake.take_calls().len(), 1);
    rig.manager.forget_pod(&"p".into());
}

#[tokio::test(start_paused = true)]
async fn what_swaps_keeps_its_memory() {
    let rig = Rig::new().await;
    let mut node = rig.manager.node_settings().clone();
    (node.memory_capacity, node.swap_capacity) = (1 << 30, 1 << 30);
    (node.cgroup_v2, node.swap_controller) = (true, true);
    let one = |memory: &str, limit: &str, policy: &str| {
        let mut container = container(
            "a",
            "1",
            memory,
            json!([{ "resourceName": "memory", "restartPolicy": policy }]),
        );
        container["resources"]["limits"]["memory"] = limit.into();
        pod("p", json!({ "containers": [container] }))
    };
    const KEPT: &str = "NotRequired";
    // whether containers may swap; the allocated and desired resources; whether the resize is refused
    let cases = [
        (true, one("1000", "2000", KEPT), one("1500", "2000", KEPT), true),
        (true, one("1000", "2000", KEPT), one("1000", "3000", KEPT), false),
        (true, one("1000", "1000", KEPT), one("1500", "1500", KEPT), false),
        (true, one("1000", "1000", KEPT), one("500", "1000", KEPT), true),
        (
            true,
            one("1000", "2000", "RestartContainer"),
            one("1500", "2000", "RestartContainer"),
            false,
        ),
        (false, one("1000", "2000", KEPT), one("1500", "2000", KEPT), false),
    ];
    for (limited_swap, allocated, desired, is_refused) in cases {
        node.limited_swap = limited_swap;
        let manager = rig.builder().node(node.clone()).build().await.unwrap();
        let refusal = manager.refuses_resize(&desired, &allocated);
        let said = refusal.as_ref().map(|refusal| refusal.message.as_str());
        let expected = is_refused.then_some("In-place resize of containers with swap is not supported.");
        assert_eq!(said, expected, "{allocated:?} {desired:?}");
        assert!(refusal.is_none_or(|refusal| refusal.reason_detail == "swap_limitation"));
    }
}
