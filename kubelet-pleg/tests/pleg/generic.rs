//! What `GenericPleg` promises, sentence by sentence, in virtual time.
use std::error::Error as _;
use std::time::Duration;

use super::fake::{FakeRuntime, Running};
use futures::FutureExt;
use kubelet_core::runtime::{ContainerState, SandboxState};
use kubelet_core::{Error, PodUid};
use tokio::time::{Instant, advance};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_first_list_is_at_time_0_and_then_one_each_period() {
    let runtime = FakeRuntime::default();
    runtime.run("a", &[("c", ContainerState::Running)]);
    let mut pleg = Running::with(runtime, |pleg| pleg.with_relist_period(7 * SECOND));
    let start = Instant::now();
    let expected = ["c ContainerStarted", "a-sb ContainerStarted"].map(str::to_owned);
    assert_eq!(pleg.next().await, ("a".to_owned(), expected.to_vec()));
    assert_eq!(start.elapsed(), Duration::ZERO);
    pleg.runtime.called("pods", 4).await;
    assert_eq!(start.elapsed(), 3 * 7 * SECOND);
    assert_eq!(pleg.runtime.calls("status a"), 1, "unchanged is not read again");
    assert!(pleg.events.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_written_before_the_event_with_the_time_before_the_list() {
    let runtime = FakeRuntime::default();
    runtime.slow_lists(SECOND / 2);
    runtime.run("a", &[("c", ContainerState::Running)]);
    let start = Instant::now();
    let mut pleg = Running::with(runtime, |pleg| pleg);
    pleg.next().await;
    assert_eq!(start.elapsed(), SECOND / 2);
    let uid = PodUid::from("a");
    assert_eq!(pleg.cache.get(&uid).unwrap().containers[0].name, "c");
    assert_eq!(pleg.cache.observed_at(&uid), Some(start));
    pleg.relisted().await;
    assert_eq!(pleg.cache.observed_at(&uid), Some(start + SECOND + SECOND / 2));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_changes_nothing_but_the_health() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.next().await;
    let (listed_at, uid) = (Instant::now(), PodUid::from("a"));
    pleg.runtime.fail_lists(true);
    pleg.runtime.clear();
    pleg.runtime.called("pods", 180).await;
    assert!(pleg.handle.healthy().is_ok());
    pleg.runtime.called("pods", 183).await;
    let problem = pleg.handle.healthy().unwrap_err();
    let problem = problem.source().unwrap();
    assert_eq!(
        problem.to_string(),
        "pleg was last seen active 182s ago; threshold is 180s"
    );
    assert!(
        problem.source().unwrap().to_string().contains("ListContainers"),
        "and which call failed"
    );
    assert!(pleg.events.is_empty());
    assert_eq!(pleg.cache.get(&uid).unwrap().containers.len(), 1);
    assert_eq!(
        pleg.cache.observed_at(&uid),
        Some(listed_at),
        "it is as old as it is"
    );

    pleg.runtime.fail_lists(false);
    let gone = [
        "c ContainerDied",
        "c ContainerRemoved",
        "a-sb ContainerDied",
        "a-sb ContainerRemoved",
    ];
    assert_eq!(pleg.next().await.1, gone);
    assert!(pleg.handle.healthy().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_hangs_is_given_up_at_the_threshold() {
    let runtime = FakeRuntime::default();
    runtime.hang_lists(true);
    let pleg = Running::with(runtime, |pleg| pleg.with_relist_threshold(60 * SECOND));
    pleg.runtime.called("pods", 1).await;
    let problem = pleg.handle.healthy().unwrap_err();
    assert_eq!(
        problem.source().unwrap().to_string(),
        "pleg has yet to be successful"
    );
    pleg.runtime.hang_lists(false);
    pleg.relisted().await;
    assert_eq!(pleg.runtime.calls("pods"), 2);
    assert!(pleg.handle.healthy().is_ok());
}

#[tokio::test(start_paused = true)]
async fn events_of_a_pod_that_cannot_be_read_are_kept_and_its_waiters_wake_with_the_error() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.runtime.run("b", &[("d", ContainerState::Running)]);
    pleg.all_seen(["a", "b"]).await;
    pleg.pending().await;

    pleg.runtime.fail_status("a", true);
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    pleg.runtime.run("b", &[("d", ContainerState::Exited)]);
    assert!(
        matches!(pleg.seen("a").await, Err(Error::Runtime { pod: Some(uid), .. }) if uid.as_str() == "a")
    );
    assert_eq!(
        pleg.next().await,
        ("b".into(), vec!["d ContainerDied".into()]),
        "others go on"
    );
    for _ in 0..30 {
        assert!(pleg.seen("a").await.is_err(), "waiters wake with each list");
    }
    assert!(pleg.events.is_empty());
    assert!(
        pleg.handle.healthy().is_ok(),
        "one pod does not speak for the node"
    );

    pleg.runtime.fail_status("a", false);
    assert_eq!(pleg.next().await, ("a".into(), vec!["c ContainerDied".into()]));
    assert_eq!(
        pleg.cache.get(&"a".into()).unwrap().containers[0].state,
        ContainerState::Exited
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_keeps_failing_is_tried_ever_rarer_and_at_once_when_it_changes() {
    let mut pleg = Running::new();
    pleg.runtime.fail_status("a", true);
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    let start = Instant::now();
    let mut tries = Vec::new();
    for count in 1..=8 {
        pleg.runtime.called("status a", count).await;
        tries.push(start.elapsed().as_secs());
    }
    assert_eq!(tries, [0, 1, 2, 4, 8, 16, 26, 36]);
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    pleg.runtime.called("status a", 9).await;
    assert_eq!(start.elapsed().as_secs(), 37);
    pleg.runtime.fail_status("a", false);
    pleg.handle.request_reinspect(&"a".into());
    pleg.next().await;
    assert_eq!(start.elapsed().as_secs(), 38, "so it is when asked for");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_came_and_went_unread_is_told_too() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[]);
    pleg.next().await;
    pleg.runtime.fail_status("a", true);
    pleg.runtime.run("a", &[("brief", ContainerState::Running)]);
    pleg.relisted().await;
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.relisted().await;
    pleg.runtime.fail_status("a", false);
    let expected = [
        "c ContainerStarted",
        "brief ContainerDied",
        "brief ContainerRemoved",
    ];
    assert_eq!(pleg.next().await.1, expected);
    for _ in 0..5 {
        pleg.relisted().await;
    }
    assert!(pleg.events.is_empty(), "once");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_never_read_is_told_when_it_goes() {
    let mut pleg = Running::new();
    pleg.runtime.fail_status("a", true);
    pleg.runtime.set("a", None, &[("c", ContainerState::Running)]);
    assert!(pleg.seen("a").await.is_err());
    pleg.runtime.remove("a");
    assert_eq!(pleg.next().await.1, ["c ContainerDied", "c ContainerRemoved"]);
    assert!(pleg.seen("a").await.unwrap().containers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_hung_pod_of_500_holds_up_nobody() {
    let runtime = FakeRuntime::default();
    for index in 0..500 {
        runtime.run(&format!("pod-{index}"), &[]);
    }
    let mut pleg = Running::with(runtime.clone(), |pleg| {
        pleg.with_inspection_deadline(600 * SECOND)
    });
    let all: Vec<String> = (0..500).map(|index| format!("pod-{index}")).collect();
    pleg.all_seen(all.iter().map(String::as_str)).await;
    pleg.pending().await;

    runtime.hang_status("pod-0", true);
    runtime.run("pod-0", &[("hangs", ContainerState::Running)]);
    let (cache, hung_at) = (pleg.cache.clone(), Instant::now());
    let hung = PodUid::from("pod-0");
    let hung = cache.get_newer_than(&hung, hung_at);
    tokio::pin!(hung);
    for round in 0..590u32 {
        let changed = format!("pod-{}", 1 + round % 499);
        runtime.run(&changed, &[(&format!("c-{round}"), ContainerState::Running)]);
        let asked = Instant::now();
        assert_eq!(pleg.seen(&changed).await.unwrap().containers.len(), 1);
        pleg.seen("pod-499").await.unwrap();
        assert!(asked.elapsed() <= 2 * SECOND);
        assert!(pleg.handle.healthy().is_ok());
        if hung_at.elapsed() < 600 * SECOND {
            assert!(
                hung.as_mut().now_or_never().is_none(),
                "nothing is claimed of the pod"
            );
        }
    }
    assert!(matches!(hung.await, Err(Error::Timeout { pod: Some(uid), .. }) if uid.as_str() == "pod-0"));
    runtime.hang_status("pod-0", false);
    while pleg.seen("pod-0").await.is_err() {}
    let told = pleg.pending().await;
    assert_eq!(
        told.iter()
            .filter(|(_, container, _)| container == "hangs")
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_waiter_who_came_while_the_pod_hung_wakes_at_its_deadline() {
    let pleg = Running::with(FakeRuntime::default(), |pleg| {
        pleg.with_inspection_deadline(30 * SECOND)
    });
    pleg.runtime.hang_status("a", true);
    pleg.runtime.run("a", &[]);
    pleg.runtime.called("status a", 1).await;
    let hung_at = Instant::now();
    pleg.runtime.called("pods", 20).await;
    assert!(pleg.seen("a").await.is_err());
    assert_eq!(hung_at.elapsed(), 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn inspections_are_bounded_and_more_hung_pods_than_places_hold_up_nobody() {
    let mut pleg = Running::with(FakeRuntime::default(), |pleg| {
        pleg.with_max_concurrent_inspections(4)
    });
    for index in 0..20 {
        pleg.runtime.hang_status(&format!("hung-{index}"), true);
        pleg.runtime.run(&format!("hung-{index}"), &[]);
    }
    pleg.runtime.run("zzz", &[]);
    pleg.runtime.called("status hung-0", 1).await;
    assert_eq!(pleg.runtime.max_in_flight(), 4);
    let start = Instant::now();
    assert_eq!(pleg.next().await.0, "zzz");
    assert!(start.elapsed() <= 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_changes_while_it_is_read_is_read_again() {
    let mut pleg = Running::new();
    pleg.runtime.hang_status("a", true);
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.relisted().await;
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    pleg.relisted().await;
    pleg.runtime.hang_status("a", false);
    // The call that hangs does so until its deadline; the next list tries anew.
    let (_, events) = pleg.next().await;
    assert_eq!(events, ["c ContainerDied", "a-sb ContainerStarted"]);
    assert_eq!(pleg.runtime.calls("status a"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanishes_died_and_was_removed_and_leaves_the_cache() {
    let mut pleg = Running::new();
    pleg.runtime.set(
        "a",
        Some(SandboxState::NotReady),
        &[("c", ContainerState::Running)],
    );
    pleg.runtime.run("b", &[]);
    pleg.all_seen(["a", "b"]).await;
    pleg.pending().await;
    pleg.runtime.remove("a");
    let expected = ["c ContainerDied", "c ContainerRemoved", "a-sb ContainerRemoved"];
    assert_eq!(
        pleg.next().await,
        ("a".into(), expected.map(str::to_owned).to_vec())
    );
    assert!(pleg.cache.get(&"a".into()).unwrap().sandboxes.is_empty());
    assert_eq!(pleg.cache.get(&"b".into()).unwrap().sandboxes.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hung_pod_that_vanishes_is_gone_at_once() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.next().await;
    pleg.runtime.hang_status("a", true);
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    pleg.relisted().await;
    pleg.runtime.remove("a");
    assert!(pleg.seen("a").await.unwrap().containers.is_empty());
    let (_, events) = pleg.next().await;
    assert_eq!(events[..2], ["c ContainerDied", "c ContainerRemoved"]);
    // It comes back, and the old inspection does not speak for it.
    pleg.runtime.hang_status("a", false);
    pleg.runtime.run("a", &[("c2", ContainerState::Running)]);
    assert_eq!(pleg.next().await.1[0], "c2 ContainerStarted");
}

#[tokio::test(start_paused = true)]
async fn an_inspection_of_a_pod_that_went_does_not_speak_for_the_one_that_came() {
    let mut pleg = Running::new();
    pleg.runtime.slow_status("a", SECOND * 5 / 2);
    pleg.runtime.set("a", None, &[("c", ContainerState::Running)]);
    pleg.runtime.called("status a", 1).await;
    pleg.runtime.remove("a");
    assert_eq!(pleg.next().await.1, ["c ContainerDied", "c ContainerRemoved"]);
    pleg.runtime.set("a", None, &[("c2", ContainerState::Running)]);
    assert_eq!(pleg.next().await.1, ["c2 ContainerStarted"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_status_is_as_new_as_the_last_list_that_did_not_change() {
    let pleg = Running::new();
    let start = Instant::now();
    pleg.runtime.slow_status("a", SECOND * 3 / 2);
    pleg.runtime.run("a", &[]);
    pleg.runtime.called("status a", 1).await;
    advance(SECOND / 2).await;
    assert_eq!(pleg.seen("a").await.unwrap().sandboxes.len(), 1);
    assert_eq!(start.elapsed(), SECOND * 3 / 2, "and not with the list after it");
}

#[tokio::test(start_paused = true)]
async fn ips_stay_while_no_sandbox_is_ready() {
    let pleg = Running::new();
    let ips = async |pleg: &Running| pleg.seen("a").await.unwrap().ips.clone();
    pleg.runtime.set_ips("a", &["10.0.0.1", "fd00::1"]);
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    assert_eq!(ips(&pleg).await, ["10.0.0.1", "fd00::1"]);
    pleg.runtime.set_ips("a", &[]);
    pleg.runtime.fail_status("a", true);
    pleg.runtime.set(
        "a",
        Some(SandboxState::NotReady),
        &[("c", ContainerState::Exited)],
    );
    assert!(pleg.seen("a").await.is_err());
    pleg.runtime.fail_status("a", false);
    while pleg.seen("a").await.is_err() {}
    assert_eq!(
        ips(&pleg).await,
        ["10.0.0.1", "fd00::1"],
        "an error takes them no more"
    );
    pleg.runtime.run("a", &[("c2", ContainerState::Running)]);
    assert!(ips(&pleg).await.is_empty(), "a ready sandbox has those it has");
}

#[tokio::test(start_paused = true)]
async fn request_reinspect_reads_an_unchanged_pod_with_the_next_list() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[]);
    pleg.next().await;
    pleg.handle.request_reinspect(&"a".into());
    pleg.handle.request_reinspect(&"unknown".into());
    assert_eq!(pleg.next().await, ("a".into(), vec!["PodSync".into()]));
    assert_eq!(pleg.runtime.calls("pods"), 2);
    pleg.runtime.called("pods", 5).await;
    assert_eq!(pleg.runtime.calls("status a"), 2, "once");
}

#[tokio::test(start_paused = true)]
async fn request_relist_lists_one_pod_at_once() {
    let mut pleg = Running::with(FakeRuntime::default(), |pleg| {
        pleg.with_relist_period(300 * SECOND)
    });
    pleg.relisted().await;
    advance(SECOND).await;
    let asked_at = Instant::now();
    let (cache, a, nobody) = (pleg.cache.clone(), PodUid::from("a"), PodUid::from("nobody"));
    let waiting = cache.get_newer_than(&nobody, asked_at - SECOND);
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    for _ in 0..10 {
        pleg.handle.request_relist(&a);
    }
    assert_eq!(pleg.next().await.1[0], "c ContainerStarted");
    assert_eq!(Instant::now(), asked_at);
    assert_eq!(pleg.runtime.calls("pod a"), 1, "coalesced");
    assert_eq!(cache.observed_at(&a), Some(asked_at));

    // Unchanged, gone, unknown: whoever waits for it is served by this list alone.
    advance(SECOND).await;
    pleg.handle.request_relist(&a);
    assert_eq!(
        cache.get_newer_than(&a, asked_at).await.unwrap().containers.len(),
        1
    );
    assert_eq!(pleg.runtime.calls("status a"), 1);
    pleg.handle.request_relist(&nobody);
    assert!(waiting.await.unwrap().sandboxes.is_empty());
    pleg.runtime.remove("a");
    pleg.handle.request_relist(&a);
    assert_eq!(
        pleg.next().await.1[..2],
        ["c ContainerDied", "c ContainerRemoved"]
    );
    assert_eq!(pleg.runtime.calls("pods"), 2);
    assert_eq!(asked_at.elapsed(), SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_began_after_the_request_serves_it() {
    let runtime = FakeRuntime::default();
    runtime.slow_lists(SECOND);
    let mut pleg = Running::with(runtime.clone(), |pleg| pleg);
    pleg.handle.request_relist(&"a".into());
    runtime.run("a", &[]);
    pleg.next().await;
    pleg.runtime.called("pods", 2).await;
    assert_eq!(runtime.calls("pod a"), 0);

    // One that was under way does not; and one that fails does not either.
    pleg.handle.request_relist(&"a".into());
    runtime.called("pod a", 1).await;
    runtime.fail_lists(true);
    runtime.called("pods", 4).await;
    pleg.handle.request_relist(&"a".into());
    runtime.called("pod a", 2).await;
}

#[tokio::test(start_paused = true)]
async fn lists_of_single_pods_never_hold_up_the_list_of_all() {
    let pleg = Running::new();
    pleg.runtime.run("a", &[]);
    pleg.seen("a").await.unwrap();
    for index in 0..100 {
        pleg.runtime.hang_pod_list(&format!("hung-{index}"), true);
        pleg.handle
            .request_relist(&format!("hung-{index}").as_str().into());
    }
    let start = Instant::now();
    for _ in 0..10 {
        pleg.seen("a").await.unwrap();
        pleg.handle.request_relist(&"hung-0".into());
    }
    assert_eq!(start.elapsed(), 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_list_was_dropped_for_a_list_that_failed_is_made_again() {
    let pleg = Running::with(FakeRuntime::default(), |pleg| {
        pleg.with_relist_period(30 * SECOND)
    });
    pleg.relisted().await;
    pleg.runtime.hang_pod_list("a", true);
    pleg.handle.request_relist(&"a".into());
    pleg.runtime.called("pod a", 1).await;
    pleg.runtime.fail_lists(true);
    pleg.runtime.called("pod a", 2).await;
    assert_eq!(pleg.runtime.calls("pods"), 3);
}

#[tokio::test(start_paused = true)]
async fn the_list_handed_out_before_is_a_change_after_a_single_pod_was_listed() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.relisted().await;
    pleg.pending().await;
    let before = pleg.runtime.listed();
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    pleg.handle.request_relist(&"a".into());
    assert_eq!(pleg.next().await.1, ["c ContainerDied"]);
    pleg.runtime.put_shared(before);
    assert_eq!(pleg.next().await.1, ["c ContainerStarted"]);

    // The only pod there is goes, found by itself, and comes back under the same list.
    let before = pleg.runtime.listed();
    pleg.runtime.remove("a");
    pleg.handle.request_relist(&"a".into());
    pleg.next().await;
    pleg.runtime.put_shared(before);
    assert_eq!(pleg.next().await.1[0], "c ContainerStarted");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_end_with_the_pleg_and_handles_may_stay() {
    let mut pleg = Running::new();
    pleg.runtime.run("a", &[]);
    pleg.seen("a").await.unwrap();
    pleg.runtime.hang_lists(true);
    pleg.runtime.called("pods", 3).await;
    pleg.shutdown.cancel();
    (&mut pleg.task).await.unwrap();
    assert_eq!(pleg.next().await.0, "a", "what was told stays told");
    assert!(pleg.events.next().await.is_none());
    assert!(pleg.handle.subscribe().next().await.is_none());
    pleg.handle.request_relist(&"a".into());
    assert!(pleg.handle.healthy().is_ok());
}
