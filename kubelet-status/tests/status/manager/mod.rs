//! The manager against a sink that stores pods, under paused time.
mod fake;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fake::{Running, Store, ended, pod, running, waiting};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodStatus as ApiPodStatus};
use kubelet_core::runtime::PodStatus;
use kubelet_core::{ContainerId, PodExt, PodStatusInput, PodStatusReporter, PodUid};
use kubelet_status::{MemorySink, StatusManagerConfig};
use serde_json::json;

fn condition<'a>(status: &'a ApiPodStatus, type_: &str) -> &'a PodCondition {
    let conditions = status.conditions.as_ref().unwrap();
    conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap()
}

fn transition(status: &ApiPodStatus) -> String {
    let time = condition(status, "Ready").last_transition_time.as_ref().unwrap();
    time.0.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_changed_status_is_sent_at_once_and_normalised() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, running());
    store.called("patch a", 1).await;
    manager.stop().await;

    let sent = store.pod("a").unwrap().status.clone().unwrap();
    assert_eq!(sent.phase.as_deref(), Some("Running"));
    assert_eq!(sent.observed_generation, Some(1));
    assert_eq!(sent.start_time.unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    let state = sent.container_statuses.unwrap()[0].state.clone().unwrap();
    let started_at = state.running.unwrap().started_at.unwrap();
    assert_eq!(started_at.0.to_string(), "2026-01-01T00:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn what_did_not_change_is_not_sent_and_keeps_its_times() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, waiting());
    store.called("patch a", 1).await;
    for _ in 0..100 {
        tokio::time::advance(Duration::from_secs(11)).await;
        manager.handle.set_pod_status(&pod, waiting());
    }
    let reported = manager.handle.pod_status(&pod.uid()).unwrap();
    assert_eq!(transition(&reported), "2026-01-01T00:00:00Z");

    manager.handle.set_pod_status(&pod, running());
    let reported = manager.handle.pod_status(&pod.uid()).unwrap();
    assert_eq!(transition(&reported), "2026-01-01T00:18:20Z");
    manager.stop().await;
    assert_eq!(store.calls(), ["get a", "patch a", "get a", "patch a"]);
}

#[tokio::test(start_paused = true)]
async fn a_burst_on_one_pod_is_one_patch() {
    let (store, pod) = (
        Store::default(),
        pod("a", "1", json!({"spec": {"restartPolicy": "Always"}})),
    );
    store.insert(&pod);
    let manager = Running::start(store.clone());
    for _ in 0..1000 {
        manager.handle.set_pod_status(&pod, waiting());
        manager.handle.set_pod_status(&pod, running());
    }
    store.called("patch a", 1).await;
    manager.stop().await;
    assert_eq!(store.calls(), ["get a", "patch a"]);
    assert_eq!(
        store.pod("a").unwrap().status.as_ref().unwrap().phase.as_deref(),
        Some("Running")
    );
}

#[tokio::test(start_paused = true)]
async fn a_probes_result_moves_the_readiness_of_container_and_pod() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, running());
    store.called("patch a", 1).await;
    let container = ContainerId::new("fake", "c");
    manager
        .handle
        .set_container_readiness(&pod.uid(), &ContainerId::new("fake", "other"), false);
    manager
        .handle
        .set_container_readiness(&pod.uid(), &container, true);
    manager.handle.set_container_startup(&pod.uid(), &container, true);
    manager
        .handle
        .set_container_readiness(&pod.uid(), &container, false);
    store.called("patch a", 2).await;
    let sent = store.pod("a").unwrap().status.clone().unwrap();
    assert!(!sent.container_statuses.as_ref().unwrap()[0].ready);
    assert_eq!(condition(&sent, "Ready").status, "False");
    assert_eq!(
        condition(&sent, "Ready").reason.as_deref(),
        Some("ContainersNotReady")
    );
    assert_eq!(condition(&sent, "ContainersReady").status, "False");
    manager
        .handle
        .set_container_startup(&pod.uid(), &container, false);
    store.called("patch a", 3).await;
    manager.stop().await;
    let sent = store.pod("a").unwrap().status.clone().unwrap();
    assert_eq!(sent.container_statuses.unwrap()[0].started, Some(false));
}

#[tokio::test(start_paused = true)]
async fn what_ended_stays_ended() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, ended(0));
    // The container would run again.
    manager.handle.set_pod_status(&pod, running());
    assert_eq!(
        manager.handle.pod_status(&pod.uid()).unwrap().phase.as_deref(),
        Some("Succeeded")
    );
    // The pod would.
    let mut undone = ended(0);
    undone.phase = Some("Running".to_owned());
    manager.handle.set_pod_status(&pod, undone);
    assert_eq!(
        manager.handle.pod_status(&pod.uid()).unwrap().phase.as_deref(),
        Some("Succeeded")
    );
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_with_growing_waits_and_the_latest_status() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    store.fail("a", true);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, waiting());
    let start = tokio::time::Instant::now();
    store.called("get a", 6).await;
    // 0.5 + 1 + 2 + 4 + 8 s, and the look-through does not cut a wait short.
    assert_eq!(start.elapsed().as_millis() / 100, 155);
    manager.handle.set_pod_status(&pod, running());
    store.fail("a", false);
    store.called("patch a", 1).await;
    assert!(start.elapsed() < Duration::from_secs(26), "{:?}", start.elapsed());
    manager.stop().await;
    assert_eq!(
        store.pod("a").unwrap().status.as_ref().unwrap().phase.as_deref(),
        Some("Running")
    );
}

#[tokio::test(start_paused = true)]
async fn a_hung_sink_call_holds_up_no_other_pod_and_ends() {
    let store = Store::default();
    let mut config = StatusManagerConfig::default();
    (config.max_in_flight, config.qps) = (2, 0);
    let manager = Running::with(store.clone(), config);
    let hung = pod("hung", "0", json!({}));
    store.insert(&hung);
    store.hang("hung");
    manager.handle.set_pod_status(&hung, running());
    store.called("get hung", 1).await;
    let start = tokio::time::Instant::now();
    for i in 0..100 {
        let pod = pod(&format!("p{i}"), &format!("u{i}"), json!({}));
        store.insert(&pod);
        manager.handle.set_pod_status(&pod, running());
    }
    for i in 0..100 {
        store.called(&format!("patch p{i}"), 1).await;
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    // Its deadline passes and it is tried anew.
    store.called("get hung", 2).await;
    assert_eq!(start.elapsed().as_secs(), 30);
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_what_can_be_sent_within_its_bound() {
    let store = Store::default();
    let manager = Running::start(store.clone());
    let (hung, failing, fine) = (
        pod("hung", "0", json!({})),
        pod("failing", "1", json!({})),
        pod("fine", "2", json!({})),
    );
    for pod in [&hung, &failing, &fine] {
        store.insert(pod);
    }
    store.hang("hung");
    store.fail("failing", true);
    manager.handle.set_pod_status(&hung, running());
    manager.handle.set_pod_status(&failing, running());
    store.called("get failing", 1).await;
    store.fail("failing", false);
    manager.handle.set_pod_status(&fine, running());
    let start = tokio::time::Instant::now();
    manager.stop().await;
    assert_eq!(start.elapsed().as_secs(), 5);
    for name in ["failing", "fine"] {
        assert!(store.pod(name).unwrap().status.is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_deleted_when_it_is_to_go_and_all_of_it_has_ended() {
    let store = Store::default();
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let pod = pod("a", "1", deleting);
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, ended(0));
    store.called("patch a", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(store.pod("a").is_some(), "its resources are not given back yet");
    manager.handle.terminate_pod(&pod);
    store.called("delete a", 1).await;
    assert!(store.pod("a").is_none());
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_is_deleted_once_its_source_wants_it_gone() {
    let (store, alive) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&alive);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&alive, running());
    manager.handle.terminate_pod(&alive);
    store.called("patch a", 1).await;
    let deleting = pod(
        "a",
        "1",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    store.insert(&deleting);
    manager.handle.observe_pod(&deleting);
    store.called("delete a", 1).await;
    manager.stop().await;
    assert_eq!(phase_of_a(&store), None);
}

fn phase_of_a(store: &Store) -> Option<String> {
    store.pod("a")?.status.clone()?.phase
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_and_a_mirror_are_never_deleted() {
    let store = Store::default();
    let manager = Running::start(store.clone());
    let file = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"kubernetes.io/config.source": "file"}}});
    let plain = pod("plain", "1", file.clone());
    store.insert(&plain);
    let with_mirror = pod("mirrored", "2", file);
    let mirror = pod(
        "mirrored",
        "of-the-mirror",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"kubernetes.io/config.source": "api", "kubernetes.io/config.mirror": "h"}}}),
    );
    store.insert(&mirror);
    for pod in [&plain, &with_mirror] {
        manager.handle.set_pod_status(pod, ended(0));
        manager.handle.terminate_pod(pod);
    }
    store.called("patch plain", 1).await;
    store.called("patch mirrored", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    manager.stop().await;
    assert!(store.pod("plain").is_some());
    let shown = store.pod("mirrored").unwrap();
    assert_eq!(shown.uid_str(), "of-the-mirror");
    assert_eq!(shown.status.as_ref().unwrap().phase.as_deref(), Some("Succeeded"));
    assert!(!store.calls().iter().any(|call| call.starts_with("delete")));
}

#[tokio::test(start_paused = true)]
async fn a_terminal_phase_waits_until_no_container_can_run() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.begin_pod(&pod.uid());
    manager.handle.set_pod_status(&pod, running());
    store.called("patch a", 1).await;
    manager.handle.set_pod_status(&pod, ended(0));
    store.called("patch a", 2).await;
    assert_eq!(phase_of_a(&store).as_deref(), Some("Running"));
    manager.handle.containers_ended(&pod.uid());
    store.called("patch a", 3).await;
    assert_eq!(phase_of_a(&store).as_deref(), Some("Succeeded"));

    // Nothing has waited for it.
    manager.handle.containers_ended(&pod.uid());
    manager.stop().await;
    let patches = store.calls().iter().filter(|call| *call == "patch a").count();
    assert_eq!(patches, 3);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_was_ended_and_comes_back_is_shown_as_it_runs() {
    let store = Store::default();
    let manager = Running::start(store.clone());
    let file = json!({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}});
    let pod = pod("a", "1", file);
    let state = || {
        let reported = manager.handle.pod_status(&pod.uid()).unwrap();
        (
            reported.phase.clone().unwrap(),
            reported.container_statuses.as_ref().unwrap()[0].clone(),
        )
    };
    let is_waiting = |(phase, container): (String, ContainerStatus)| {
        let waiting = container.state.unwrap().waiting;
        let before = container.last_state.unwrap().terminated;
        (waiting.unwrap().reason.unwrap(), before.is_some(), phase)
    };
    // Its file went and came: its container ended for good, the pod did not.
    let stopped = ApiPodStatus {
        phase: Some("Running".to_owned()),
        ..ended(0)
    };
    for _ in 0..2 {
        manager.handle.begin_pod(&pod.uid());
        manager.handle.set_pod_status(&pod, running());
        assert!(state().1.state.unwrap().running.is_some());
        manager.handle.set_pod_status(&pod, stopped.clone());
        manager.handle.begin_pod(&pod.uid());
        manager.handle.set_pod_status(&pod, running());
        let ended = state().1.state.unwrap().terminated;
        assert!(ended.is_some(), "it has not begun anew");
        manager.handle.terminate_pod(&pod);
    }
    manager.handle.begin_pod(&pod.uid());
    let creating = "ContainerCreating".to_owned();
    assert_eq!(
        is_waiting(state()),
        (creating.clone(), true, "Running".to_owned())
    );

    // Nobody knew it for a while, and the sink was not told of that yet.
    manager.handle.set_pod_status(&pod, ended(0));
    manager.handle.terminate_pod(&pod);
    manager.handle.remove_orphaned_statuses(&HashSet::new());
    manager.handle.begin_pod(&pod.uid());
    assert_eq!(is_waiting(state()), (creating, true, "Pending".to_owned()));
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_shows_the_end_of_a_former_life_is_left_to_be_made_anew() {
    let file = json!({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}});
    let file = pod("a", "1", file);
    let mirror = |uid: &str, status: ApiPodStatus| {
        let of_file = json!({"kubernetes.io/config.source": "api", "kubernetes.io/config.mirror": "h"});
        let mirror = pod("a", uid, json!({"metadata": {"annotations": of_file}}));
        let status = Some(status);
        Arc::new(Pod {
            status,
            ..Arc::unwrap_or_clone(mirror)
        })
    };
    let phase = |phase: &str, status| ApiPodStatus {
        phase: Some(phase.to_owned()),
        ..status
    };
    for former in [
        ended(0),
        phase("Running", ended(0)),
        phase("Failed", ApiPodStatus::default()),
    ] {
        let store = Store::default();
        let manager = Running::start(store.clone());
        let former = mirror("former", former);
        store.insert(&former);
        manager.handle.observe_pod(&former);
        assert!(
            manager.handle.can_be_shown_by(&file, &former),
            "nothing was reported yet"
        );
        manager.handle.set_pod_status(&file, running());
        assert!(!manager.handle.can_be_shown_by(&file, &former));
        store.called("get a", 1).await;

        let next = mirror("next", phase("Pending", ApiPodStatus::default()));
        assert!(manager.handle.can_be_shown_by(&file, &next));
        store.insert(&next);
        manager.handle.observe_pod(&next);
        store.called("patch a", 1).await;
        manager.stop().await;
        assert_eq!(phase_of_a(&store).as_deref(), Some("Running"));
        let patches = store.calls().iter().filter(|call| *call == "patch a").count();
        assert_eq!(patches, 1, "the next one alone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_replaced_by_another_of_its_name_is_not_patched() {
    let (store, old) = (Store::default(), pod("a", "old", json!({})));
    store.insert(&pod("a", "new", json!({})));
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&old, running());
    store.called("get a", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(manager.handle.pod_status(&old.uid()).is_none());
    manager.stop().await;
    assert_eq!(store.calls(), ["get a"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_sink_does_not_have_yet_is_sent_when_it_has() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, running());
    store.called("get a", 2).await;
    store.insert(&pod);
    store.called("patch a", 1).await;
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_source_shows_otherwise_is_sent_again() {
    let (store, alive) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&alive);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&alive, running());
    store.called("patch a", 1).await;
    let reset = pod("a", "1", json!({"status": {"phase": "Pending"}}));
    store.insert(&reset);
    manager.handle.observe_pod(&reset);
    store.called("patch a", 2).await;
    assert_eq!(phase_of_a(&store).as_deref(), Some("Running"));
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_differs_after_a_rest_is_put_right_within_a_period() {
    let (store, alive) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&alive);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&alive, running());
    store.called("patch a", 1).await;
    for round in 2..5 {
        tokio::time::sleep(Duration::from_secs(3603)).await;
        let rested = tokio::time::Instant::now();
        let version = format!("1{round}");
        let reset = json!({"metadata": {"resourceVersion": version}, "status": {"phase": "Pending"}});
        let reset = pod("a", "1", reset);
        store.insert(&reset);
        manager.handle.observe_pod(&reset);
        store.called("patch a", round).await;
        assert!(
            rested.elapsed() <= Duration::from_secs(10),
            "{:?}",
            rested.elapsed()
        );
    }
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn orphans_are_forgotten_after_their_last_status_was_sent() {
    let (store, pod) = (Store::default(), pod("a", "1", json!({})));
    store.insert(&pod);
    let manager = Running::start(store.clone());
    manager.handle.set_pod_status(&pod, ended(1));
    manager
        .handle
        .remove_orphaned_statuses(&HashSet::from([PodUid::new("other")]));
    assert!(manager.handle.pod_status(&pod.uid()).is_none());
    store.called("forget a", 1).await;
    manager.stop().await;
    assert_eq!(store.calls(), ["get a", "patch a", "forget a"]);
}

#[tokio::test(start_paused = true)]
async fn the_memory_sink_shows_the_latest_and_loses_who_is_gone() {
    let sink = MemorySink::new();
    let mut pods = sink.watch();
    let manager = Running::start(sink.clone());
    let kept = pod("kept", "1", json!({}));
    let orphan = pod("orphan", "2", json!({}));
    let deleted = pod(
        "deleted",
        "3",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    for pod in [&kept, &orphan, &deleted] {
        manager.handle.set_pod_status(pod, running());
    }
    pods.wait_for(|pods| pods.len() == 3).await.unwrap();
    manager.handle.set_pod_status(&kept, ended(0));
    manager.handle.terminate_pod(&deleted);
    manager
        .handle
        .remove_orphaned_statuses(&HashSet::from([kept.uid(), deleted.uid()]));
    pods.wait_for(|pods| pods.len() == 1).await.unwrap();
    manager.stop().await;
    assert_eq!(sink.get(&kept.uid()).unwrap().phase.as_deref(), Some("Succeeded"));
    assert_eq!(sink.all()[0].pod.uid(), kept.uid());
}

#[tokio::test(start_paused = true)]
async fn the_start_time_stays() {
    let manager = Running::start(MemorySink::new());
    let start = |uid: &str| {
        let status = manager.handle.pod_status(&PodUid::new(uid)).unwrap();
        status.start_time.as_ref().unwrap().0.to_string()
    };
    let shown = pod(
        "shown",
        "1",
        json!({"status": {"startTime": "2025-12-31T23:00:00Z"}}),
    );
    let new = pod("new", "2", json!({}));
    for status in [waiting(), running()] {
        for pod in [&shown, &new] {
            manager.handle.set_pod_status(pod, status.clone());
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(
            [start("1"), start("2")],
            ["2025-12-31T23:00:00Z", "2026-01-01T00:00:00Z"]
        );
    }
    manager.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_resize_is_over_with_its_pod() {
    let manager = Running::start(MemorySink::new());
    let pod = pod("a", "1", json!({}));
    let runtime = PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    let shown = |terminal: bool| {
        let mut input = PodStatusInput::new(&pod, &runtime);
        input.terminal = terminal;
        let status = manager.handle.generate(&input);
        manager.handle.set_pod_status(&pod, status);
        let status = manager.handle.pod_status(&pod.uid()).unwrap();
        let conditions = status.conditions.iter().flatten();
        let resizes = conditions.filter(|condition| condition.type_.starts_with("PodResize"));
        resizes.cloned().collect::<Vec<_>>()
    };
    let earlier = json!({"status": {"conditions": [{"type": "PodResizeInProgress", "status": "True", "observedGeneration": 3}]}});
    manager
        .handle
        .backfill_pod_resize_conditions(&fake::pod("a", "1", earlier));
    manager
        .handle
        .set_pod_resize_pending_condition(&pod.uid(), "Deferred", "no room", 4);
    tokio::time::advance(Duration::from_secs(5)).await;
    manager
        .handle
        .set_pod_resize_pending_condition(&pod.uid(), "Deferred", "still no room", 4);
    let [pending, in_progress] = &shown(false)[..] else {
        panic!("two conditions")
    };
    assert_eq!(
        (pending.message.as_deref(), pending.observed_generation),
        (Some("still no room"), Some(4))
    );
    let seconds = [&pending.last_transition_time, &pending.last_probe_time]
        .map(|time| time.as_ref().unwrap().0.to_string());
    assert_eq!(seconds, ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"]);
    assert_eq!(in_progress.observed_generation, Some(3));
    assert!(shown(true).is_empty() && shown(false).is_empty());
    manager.stop().await;
}
