//! Why a pod is where it is, in virtual time.
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Answers, Node, Pods, pod};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::SyncFailure;
use kubelet_core::{FixedNode, PodExt, PodWorkerState, ProbeResultCache, Step, annotations};
use tokio::time::Instant;

/// Looks each virtual second until the pod's steps are as they should be.
async fn until(node: &Node, uid: &str, reached: impl Fn(&[Step]) -> bool) -> Vec<Step> {
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let steps = node.handle.explain(&uid.into());
        if reached(&steps) {
            return steps;
        }
        assert!(Instant::now() < deadline, "it is {steps:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn deferrals(steps: &[Step]) -> Vec<&'static str> {
    steps.iter().filter_map(Step::deferral).collect()
}

#[tokio::test(start_paused = true)]
async fn from_its_source_to_its_end() {
    let (node, [file, _api]) = Node::start(Pods::default(), ["file", "api"]);
    let unknown = node.handle.explain(&"a".into());
    let silent_sources = vec!["file".to_owned(), "api".to_owned()];
    assert_eq!(unknown[0], Step::NotListed { silent_sources });

    file.send(vec![Arc::new(pod("a"))]).unwrap();
    let well = until(&node, "a", |steps| {
        matches!(steps, [_, Step::LooksAgainAt { .. }])
    })
    .await;
    assert_eq!(
        well[0],
        Step::Source {
            name: Some("file".to_owned())
        }
    );
    assert!(deferrals(&well).is_empty());

    node.runtime.kill_hangs.send_replace(true);
    file.send(vec![]).unwrap();
    let ending = until(&node, "a", |steps| {
        matches!(steps.last(), Some(Step::Working { .. }))
    })
    .await;
    let grace_period = Some(Duration::from_secs(7));
    assert!(ending.contains(&Step::Terminating { grace_period }), "{ending:?}");
    let terminating = PodWorkerState::Terminating;
    assert!(matches!(ending.last(), Some(Step::Working { state, .. }) if *state == terminating));
    node.runtime.kill_hangs.send_replace(false);
    until(&node, "a", |steps| steps.contains(&Step::Finished)).await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_back_off_tells_which_container_and_until_when() {
    let runtime = Pods::default();
    let until_then = Some(Instant::now() + Duration::from_secs(40));
    *runtime.fails.lock() = Some(SyncFailure {
        reason: "CrashLoopBackOff".into(),
        message: "back-off 40s".into(),
        back_off_until: until_then,
    });
    let (node, [file]) = Node::start(runtime, ["file"]);
    let mut brief = pod("a");
    brief.spec.as_mut().unwrap().active_deadline_seconds = Some(3600);
    file.send(vec![Arc::new(brief)]).unwrap();
    let waits = |steps: &[Step]| matches!(steps, [_, Step::RetriesAt { .. }, Step::Container { .. }, _]);
    let steps = until(&node, "a", waits).await;
    let Step::Container {
        name,
        reason,
        until: ends,
        ..
    } = &steps[2]
    else {
        unreachable!()
    };
    assert_eq!((&**name, &**reason, *ends), ("c", "CrashLoopBackOff", until_then));
    assert!(matches!(steps[3], Step::ActiveUntil { .. }), "{steps:?}");
    assert_eq!(deferrals(&steps), ["retry", "back-off"]);
    let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert!(
        lines[2].starts_with("container c: CrashLoopBackOff: back-off 40s ("),
        "{lines:?}"
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_down_a_status_that_does_not_come_and_a_turn() {
    let runtime = Pods::default();
    *runtime.runtime_down.lock() = true;
    let (node, [file]) = Node::start(runtime, ["file"]);
    let down = until(&node, "a", |steps| steps.len() == 2).await;
    assert_eq!(deferrals(&down), ["sources", "runtime"]);
    *node.runtime.runtime_down.lock() = false;

    let fixed = |uid: &str| {
        let mut fixed = pod("web");
        fixed.metadata.uid = Some(uid.into());
        Arc::new(fixed)
    };
    file.send(vec![fixed("one")]).unwrap();
    node.wait_for_phase("one", "Running").await;
    assert!(node.handle.pods().pod(&"one".into()).unwrap().is_static());
    node.runtime.kill_hangs.send_replace(true);
    file.send(vec![fixed("two")]).unwrap();
    let waits = until(&node, "two", |steps| deferrals(steps) == ["turn"]).await;
    assert_eq!(waits[1], Step::WaitsForTurn { of: "one".into() });
    node.runtime.kill_hangs.send_replace(false);
    node.wait_for_phase("two", "Running").await;

    *node.runtime.status_hangs.lock() = Some("slow".into());
    node.runtime.running("slow");
    file.send(vec![fixed("two"), Arc::new(pod("slow"))]).unwrap();
    until(&node, "slow", |steps| deferrals(steps) == ["status"]).await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rejected_pod_says_why() {
    // A node with nothing to give.
    let node = Arc::new(FixedNode::default());
    let (node, [file]) = Node::start_with(Pods::default(), ["api"], |builder| builder.node(node));
    let mut of_api: Pod = pod("a");
    of_api.metadata.annotations = Some([(annotations::CONFIG_SOURCE.into(), "api".into())].into());
    file.send(vec![Arc::new(of_api)]).unwrap();
    let steps = until(&node, "a", |steps| matches!(steps, [_, Step::Rejected { .. }])).await;
    assert!(
        matches!(&steps[1], Step::Rejected { reason, .. } if reason == "OutOfpods"),
        "{steps:?}"
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_has_not_succeeded_is_told_and_one_that_has_is_not() {
    let (prober, results) = (Answers::new(false), ProbeResultCache::new());
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], |builder| {
        builder.prober(prober.clone(), results.clone())
    });
    let mut web = pod("web");
    let container = &mut web.spec.as_mut().unwrap().containers[0];
    let probe = |delay: i32| {
        let probe = serde_json::json!({
            "exec": {"command": ["ask"]}, "periodSeconds": 1, "failureThreshold": 1000,
            "initialDelaySeconds": delay,
        });
        Some(serde_json::from_value(probe).unwrap())
    };
    container.startup_probe = probe(30);
    container.readiness_probe = probe(0);
    file.send(vec![Arc::new(web)]).unwrap();
    let step = |probe: &'static str, failed| Step::Probe {
        container: "c".to_owned(),
        probe,
        failed,
    };
    let begun = until(&node, "web", |steps| steps.contains(&step("startup", false))).await;
    assert!(begun.contains(&step("readiness", true)), "{begun:?}");
    assert!(
        deferrals(&begun).is_empty(),
        "its worker waits for nothing: {begun:?}"
    );
    prober.0.send_replace(true);
    let started = until(&node, "web", |steps| !steps.contains(&step("startup", false))).await;
    assert!(
        started
            .iter()
            .all(|step| !matches!(step, Step::Probe { probe: "startup", .. }))
    );
    until(&node, "web", |steps| {
        matches!(steps, [_, Step::LooksAgainAt { .. }])
    })
    .await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_failed_says_why_and_when_it_is_tried_again() {
    let runtime = Pods::default();
    *runtime.fails.lock() = Some(SyncFailure {
        reason: "RunContainerError".into(),
        message: "no such program".into(),
        back_off_until: None,
    });
    let (node, [file]) = Node::start(runtime, ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    let steps = until(&node, "a", |steps| deferrals(steps) == ["retry"]).await;
    let Step::RetriesAt { at, error } = &steps[1] else {
        panic!("{steps:?}")
    };
    assert!(error.contains("no such program"), "{error}");
    let left = at.saturating_duration_since(Instant::now());
    assert!(left <= Duration::from_secs(15), "{left:?}");
    assert!(
        matches!(&steps[2], Step::Container { reason, until: None, .. } if reason == "RunContainerError")
    );
    let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
    assert!(lines[1].contains("retried in"), "{lines:?}");
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_only_the_runtime_knows_waits_for_the_sources() {
    let runtime = Pods::default();
    runtime.running("orphan");
    let (node, [file, api]) = Node::start(runtime, ["file", "api"]);
    api.send(vec![]).unwrap();
    let waits = |steps: &[Step]| {
        let silent_sources = vec!["file".to_owned()];
        *steps == [Step::NotListed { silent_sources }]
    };
    let steps = until(&node, "orphan", waits).await;
    assert_eq!(deferrals(&steps), ["sources"]);
    file.send(vec![]).unwrap();
    node.runtime.wait_for("killed unknown orphan in 1").await;
    let steps = until(&node, "orphan", |steps| matches!(steps, [Step::NotListed { .. }])).await;
    assert!(deferrals(&steps).is_empty());
    node.stop().await;
}
