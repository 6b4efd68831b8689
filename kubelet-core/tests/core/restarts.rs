//! What a restart of the agent shows of a pod whose source keeps no statuses, in virtual time.
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Node, Pods, pod};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::{Disk, KubeletBuilder, PodKey, Step};
use tokio::time::Instant;

/// What is told was recorded before: the disk is written to on the spot.
fn keeping(root: &std::path::Path) -> impl FnOnce(KubeletBuilder) -> KubeletBuilder {
    move |builder| builder.checkpoints(true).disk(Disk::inline()).root_dir(root)
}

fn never(uid: &str) -> Arc<Pod> {
    let mut pod = pod(uid);
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    Arc::new(pod)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ran_is_not_run_twice_when_the_runtime_has_lost_it() {
    let root = tempfile::tempdir().unwrap();
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], keeping(root.path()));
    file.send(vec![never("once")]).unwrap();
    node.wait_for_phase("once", "Running").await;
    node.stop().await;

    // The host was started anew: of the pod there is its manifest, and its folder.
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], keeping(root.path()));
    file.send(vec![never("once"), never("new")]).unwrap();
    node.wait_for_phase("new", "Running").await;
    node.wait_for_phase("once", "Failed").await;
    let status = node.status("once");
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let ended = [&container.state, &container.last_state];
    let ended = ended
        .into_iter()
        .flatten()
        .find_map(|state| state.terminated.as_ref());
    let ended = ended.map(|ended| (ended.exit_code, ended.reason.as_deref()));
    assert_eq!(
        ended,
        Some((137, Some("ContainerStatusUnknown"))),
        "{container:#?}"
    );
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!node.runtime.did("started once"));

    // Its folder goes with it.
    file.send(vec![never("new")]).unwrap();
    super::rig::gone(&root.path().join("pods/once")).await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_had_ended_stays_so_and_keeps_its_times() {
    let root = tempfile::tempdir().unwrap();
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], keeping(root.path()));
    let mut brief = Pod::clone(&never("brief"));
    brief.spec.as_mut().unwrap().active_deadline_seconds = Some(5);
    let brief = Arc::new(brief);
    file.send(vec![brief.clone()]).unwrap();
    node.wait_for_phase("brief", "Failed").await;
    let finished = async {
        while !node.handle.workers().should_pod_be_finished(&"brief".into()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
    let before = node.status("brief");
    node.stop().await;

    let (node, [file]) = Node::start_with(Pods::default(), ["file"], keeping(root.path()));
    file.send(vec![brief]).unwrap();
    let finished = async {
        while !node.handle.explain(&"brief".into()).contains(&Step::Finished) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
    // Nothing is told that was not told before.
    let after = node.statuses.get(&"brief".into());
    assert!(after.is_none_or(|after| *after == before));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!node.runtime.did("started brief"));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_lives_for_seconds_collects_garbage_once_the_pods_are_known() {
    let runtime = Pods::default();
    runtime.running("wanted");
    runtime
        .pods
        .lock()
        .insert("gone".into(), (PodKey::new("ns", "gone"), false));
    let (node, [file, api]) = Node::start(runtime, ["file", "api"]);
    let begun = Instant::now();
    file.send(vec![never("wanted")]).unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(!node.runtime.did("collected gone"), "the API server may list it");
    api.send(vec![]).unwrap();
    node.runtime.wait_for("collected gone").await;
    assert!(begun.elapsed() < Duration::from_secs(25), "not after a minute");
    node.stop().await;
}

/// The manifest of a static pod changed while the agent was down.
#[tokio::test(start_paused = true)]
async fn a_static_pod_starts_after_its_earlier_version_that_still_runs() {
    let runtime = Pods::default();
    let web = PodKey::new("ns", "web");
    runtime.pods.lock().insert("old".into(), (web, true));
    let (node, [file]) = Node::start(runtime, ["file"]);
    let mut new = Pod::clone(&never("new"));
    new.metadata.name = Some("web".to_owned());
    file.send(vec![Arc::new(new)]).unwrap();
    node.runtime.wait_for("started new").await;
    assert!(
        node.runtime.did("killed unknown old in 1"),
        "{:?}",
        node.runtime.done.borrow()
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_writes_the_resources_of_its_pods_for_a_kubelet() {
    let root = tempfile::tempdir().unwrap();
    let written = root.path().join("allocated_pods_state");
    let mut web = pod("web");
    let requests = [("cpu".to_owned(), Quantity("100m".to_owned()))];
    web.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
        requests: Some(requests.into()),
        ..ResourceRequirements::default()
    });
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], keeping(root.path()));
    file.send(vec![Arc::new(web)]).unwrap();
    node.wait_for_phase("web", "Running").await;
    let mut waiting = 0;
    while !written.exists() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        waiting += 1;
        assert!(waiting < 60, "not while it runs");
    }
    std::fs::remove_file(&written).unwrap();
    node.stop().await;
    let allocated = std::fs::read_to_string(&written).unwrap();
    assert!(
        allocated.contains("web") && allocated.contains("100m"),
        "{allocated}"
    );
}
