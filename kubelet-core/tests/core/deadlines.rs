//! What takes too long, in virtual time: pods that are active for longer than they may, and calls that hang.
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Node, Pods, pod};
use kubelet_core::PodExt;
use kubelet_core::runtime::SyncFailure;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_active_for_too_long_fails_on_the_second() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    let mut brief = pod("brief");
    brief.spec.as_mut().unwrap().active_deadline_seconds = Some(30);
    let started = Instant::now();
    file.send(vec![Arc::new(brief), Arc::new(pod("other"))]).unwrap();
    node.wait_for_phase("brief", "Running").await;
    let active = || -> Vec<String> {
        let pods = node.handle.active_pods();
        pods.iter().map(|pod| pod.uid().to_string()).collect()
    };
    assert_eq!(active(), ["brief", "other"]);
    node.runtime.wait_for("killed brief in 7").await;
    let after = started.elapsed();
    assert!((30..33).contains(&after.as_secs()), "{after:?}");
    node.wait_for_phase("brief", "Failed").await;
    let status = node.status("brief");
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status.message.as_deref(), Some(message));
    let finished = async {
        while !node.handle.workers().should_pod_be_finished(&"brief".into()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .unwrap();
    assert_eq!(active(), ["other"]);
    assert_eq!(
        node.events.count("DeadlineExceeded"),
        4,
        "once for each status made"
    );
    assert_eq!(node.status("other").phase.as_deref(), Some("Running"));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_back_off_does_not_prolong_the_active_deadline() {
    let runtime = Pods::default();
    *runtime.fails.lock() = Some(SyncFailure {
        reason: "CrashLoopBackOff".into(),
        message: "back-off 5m0s".into(),
        back_off_until: Some(Instant::now() + Duration::from_secs(300)),
    });
    let (node, [file]) = Node::start(runtime, ["file"]);
    let mut brief = pod("brief");
    brief.spec.as_mut().unwrap().active_deadline_seconds = Some(20);
    let started = Instant::now();
    file.send(vec![Arc::new(brief)]).unwrap();
    node.wait_for_phase("brief", "Failed").await;
    assert!(
        (20..23).contains(&started.elapsed().as_secs()),
        "{:?}",
        started.elapsed()
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_hangs_is_given_up_and_tried_again_and_holds_no_other_pod() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.wait_for_phase("a", "Running").await;
    node.runtime.kill_hangs.send_replace(true);
    file.send(vec![Arc::new(pod("b"))]).unwrap();
    node.wait_for_phase("b", "Running").await;
    node.runtime.wait_for("kill of a hangs").await;
    let began = Instant::now();
    // The grace period, and what the runtime may take for containers and for sandboxes.
    node.events.wait_for("FailedKillPod").await;
    let given_up_after = began.elapsed().as_secs();
    assert!((245..=247).contains(&given_up_after), "{given_up_after}");
    node.runtime.done.send_modify(Vec::clear);
    node.runtime.wait_for("kill of a hangs").await;
    node.runtime.kill_hangs.send_replace(false);
    node.runtime.wait_for("killed a in 7").await;
    node.runtime.wait_for("forgot a").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_silent_is_asked_again() {
    let runtime = Pods::default();
    runtime.is_silent.send_replace(true);
    let (node, [file]) = Node::start(runtime, ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.runtime.wait_for("silent").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.handle.runtime_state().runtime_errors().is_err());
    node.runtime.is_silent.send_replace(false);
    node.runtime.wait_for("started a").await;
    node.stop().await;
}
