//! What `EventedPleg` promises, sentence by sentence, in virtual time.
use std::time::Duration;

use super::fake::{FakeRuntime, Hints, Running};
use futures::FutureExt;
use kubelet_core::PodUid;
use kubelet_core::runtime::ContainerState;
use kubelet_pleg::Mode;
use tokio::time::{Instant, advance, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn told() -> Running {
    let runtime = FakeRuntime::default();
    runtime.hints(Hints::Open);
    Running::evented(runtime, |pleg| pleg)
}

/// One whose hints have proven themselves for long: lists are as rare as can be.
async fn trusted() -> Running {
    let mut pleg = told();
    pleg.relisted().await;
    pleg.runtime.run("first", &[]);
    pleg.runtime.hint("first");
    pleg.next().await;
    while pleg.inspector.inspect().await.unwrap().relist_period < 300 * SECOND {
        pleg.runtime.called("pods", pleg.runtime.calls("pods") + 1).await;
        sleep(SECOND / 10).await;
    }
    pleg
}

#[tokio::test(start_paused = true)]
async fn the_first_list_is_at_time_0() {
    let runtime = FakeRuntime::default();
    runtime.run("a", &[]);
    for hints in [Hints::Open, Hints::Unanswered, Hints::Refused, Hints::None] {
        runtime.hints(hints);
        let mut pleg = Running::evented(runtime.clone(), |pleg| pleg);
        let start = Instant::now();
        assert_eq!(pleg.next().await.0, "a");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_asks_for_its_one_pod_at_once() {
    let mut pleg = trusted().await;
    let (lists, start) = (pleg.runtime.calls("pods"), Instant::now());
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    for _ in 0..10 {
        pleg.runtime.hint("a");
    }
    assert_eq!(
        pleg.next().await.1,
        ["c ContainerStarted", "a-sb ContainerStarted"]
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(pleg.runtime.calls("pod a") <= 2, "coalesced");
    assert_eq!(pleg.runtime.calls("status a"), 1);
    assert_eq!(pleg.runtime.calls("pods"), lists);
    assert_eq!(pleg.cache.get(&"a".into()).unwrap().containers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hints_that_are_late_doubled_early_or_of_unknown_pods_change_nothing() {
    let mut pleg = trusted().await;
    pleg.runtime.hint("nobody");
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.runtime.hint("a");
    pleg.next().await;
    for _ in 0..5 {
        pleg.runtime.hint("a");
        pleg.runtime.hint("nobody");
        sleep(SECOND).await;
    }
    assert!(pleg.events.is_empty());
    assert!(pleg.cache.get(&"nobody".into()).unwrap().sandboxes.is_empty());

    // Before the fact: the pod is looked at once more.
    pleg.runtime.hint("a");
    sleep(SECOND / 10).await;
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    let start = Instant::now();
    assert_eq!(pleg.next().await.1, ["c ContainerDied"]);
    assert!(start.elapsed() <= 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn lists_become_rare_as_the_hints_prove_themselves() {
    let mut pleg = told();
    let start = Instant::now();
    pleg.runtime.called("pods", 61).await;
    assert_eq!(start.elapsed(), 60 * SECOND, "a silent stream proves nothing");
    assert_eq!(pleg.inspector.inspect().await.unwrap().mode, Mode::Unproven);
    pleg.runtime.hint("nobody");
    pleg.runtime.called("pods", 71).await;
    assert_eq!(start.elapsed(), 70 * SECOND, "nor does a hint without a change");
    pleg.runtime.run("a", &[]);
    pleg.runtime.hint("a");
    pleg.next().await;
    let start = Instant::now();
    let mut lists = Vec::new();
    for count in 72..83 {
        pleg.runtime.called("pods", count).await;
        lists.push(start.elapsed().as_secs());
    }
    assert_eq!(lists, [1, 3, 7, 15, 31, 63, 127, 255, 511, 811, 1111]);
    let inspection = pleg.inspector.inspect().await.unwrap();
    assert_eq!(
        (inspection.mode, inspection.relist_period),
        (Mode::Evented, 300 * SECOND)
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_no_hint_told_is_counted_and_shortens_the_period() {
    let mut pleg = trusted().await;
    pleg.runtime.run("a", &[]);
    pleg.next().await;
    let (start, lists) = (Instant::now(), pleg.runtime.calls("pods"));
    pleg.runtime.called("pods", lists + 10).await;
    assert_eq!(start.elapsed(), 10 * SECOND);
    let inspection = pleg.inspector.inspect().await.unwrap();
    assert_eq!((inspection.missed_changes, inspection.mode), (1, Mode::Unproven));

    pleg.runtime.run("b", &[]);
    pleg.runtime.hint("b");
    pleg.next().await;
    pleg.runtime.called("pods", lists + 20).await;
    assert!(start.elapsed() > 300 * SECOND, "trust comes back");
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_comes_a_little_after_the_list_is_no_miss() {
    let mut pleg = trusted().await;
    pleg.runtime.run("a", &[]);
    pleg.next().await;
    sleep(SECOND / 2).await;
    pleg.runtime.hint("a");
    let lists = pleg.runtime.calls("pods");
    let start = Instant::now();
    pleg.runtime.called("pods", lists + 2).await;
    assert!(start.elapsed() > 300 * SECOND);
    assert_eq!(pleg.inspector.inspect().await.unwrap().missed_changes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_deaf_stream_is_given_up_for_a_new_one() {
    let mut pleg = told();
    pleg.relisted().await;
    for index in 0..10 {
        pleg.runtime.run(&format!("pod-{index}"), &[]);
        pleg.next().await;
    }
    pleg.runtime.called("hints", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_brings_back_the_generic_period_at_once() {
    for end in [FakeRuntime::break_hints, FakeRuntime::end_hints] {
        let mut pleg = trusted().await;
        sleep(20 * SECOND).await;
        pleg.runtime.hints(Hints::Refused);
        pleg.runtime.run("a", &[]);
        let (start, lists, asks) = (
            Instant::now(),
            pleg.runtime.calls("pods"),
            pleg.runtime.calls("hints"),
        );
        end(&pleg.runtime);
        pleg.next().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(pleg.handle.healthy().is_ok());
        pleg.runtime.called("pods", lists + 101).await;
        assert_eq!(start.elapsed(), 100 * SECOND);
        assert_eq!(pleg.inspector.inspect().await.unwrap().mode, Mode::Generic);

        // Asked for for ever, and not too often.
        sleep(3600 * SECOND).await;
        let asked = pleg.runtime.calls("hints") - asks;
        assert!((75..125).contains(&asked), "{asked}");
        pleg.runtime.hints(Hints::Open);
        let (start, asks) = (Instant::now(), pleg.runtime.calls("hints"));
        pleg.runtime.called("hints", asks + 1).await;
        assert!(start.elapsed() <= 45 * SECOND);
        sleep(2 * SECOND).await;
        pleg.runtime.run("b", &[]);
        pleg.runtime.hint("b");
        let start = Instant::now();
        pleg.next().await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(pleg.inspector.inspect().await.unwrap().mode, Mode::Evented);
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_asks_at_the_same_times() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let runtime = FakeRuntime::default();
        runtime.hints(Hints::Refused);
        let pleg = Running::evented(runtime, |pleg| pleg);
        let start = Instant::now();
        let mut asked = Vec::new();
        for count in 1..12 {
            pleg.runtime.called("hints", count).await;
            asked.push(start.elapsed());
        }
        assert!(asked[1] > SECOND && asked[1] <= SECOND * 3 / 2);
        runs.push(asked);
    }
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_hints_is_watched_generically_and_rarely_asked() {
    for hints in [Hints::None, Hints::Unsupported] {
        let runtime = FakeRuntime::default();
        runtime.hints(hints);
        let pleg = Running::evented(runtime, |pleg| pleg);
        let start = Instant::now();
        pleg.runtime.called("pods", 1001).await;
        assert_eq!(start.elapsed(), 1000 * SECOND);
        assert_eq!(pleg.runtime.calls("hints"), 4);
        assert_eq!(pleg.inspector.inspect().await.unwrap().mode, Mode::Generic);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_pauses_starves_nothing() {
    let mut pleg = told();
    pleg.relisted().await;
    let runtime = pleg.runtime.clone();
    let flood = tokio::spawn(async move {
        loop {
            for _ in 0..1000 {
                runtime.hint("noisy");
            }
            sleep(SECOND / 100).await;
        }
    });
    pleg.runtime.run("a", &[]);
    assert_eq!(pleg.next().await.0, "a");
    let start = Instant::now();
    pleg.runtime.called("pods", pleg.runtime.calls("pods") + 10).await;
    assert!(start.elapsed() <= 10 * SECOND);
    flood.abort();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_served_while_lists_are_rare() {
    let pleg = trusted().await;
    sleep(5 * SECOND).await;
    let (lists, start) = (pleg.runtime.calls("pods"), Instant::now());
    // Who asks is served at once, who does not within a period or two.
    advance(SECOND / 100).await;
    for uid in ["first", "nobody"] {
        let uid = PodUid::from(uid);
        pleg.handle.request_relist(&uid);
        pleg.cache.get_newer_than(&uid, start).await.unwrap();
        assert_eq!(start.elapsed(), SECOND / 100);
    }
    for uid in ["first", "nobody"] {
        let asked = Instant::now();
        pleg.seen(uid).await.unwrap();
        assert!(asked.elapsed() <= 2 * SECOND);
    }
    assert_eq!(pleg.runtime.calls("pods"), lists);
}

#[tokio::test(start_paused = true)]
async fn with_lists_an_hour_apart_single_pods_are_looked_after_each_second() {
    let runtime = FakeRuntime::default();
    runtime.hints(Hints::Open);
    let mut pleg = Running::evented(runtime, |pleg| pleg.with_relist_period(3600 * SECOND));
    pleg.runtime.called("pods", 1).await;
    sleep(SECOND / 10).await;
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.runtime.hint("a");
    let start = Instant::now();
    assert_eq!(pleg.next().await.1[0], "c ContainerStarted");
    assert_eq!(start.elapsed(), Duration::ZERO);
    // Who waits and did not ask, and who waits on.
    for uid in ["a", "nobody", "a"] {
        let start = Instant::now();
        pleg.seen(uid).await.unwrap();
        assert!(start.elapsed() <= 2 * SECOND, "{uid} {:?}", start.elapsed());
    }
    pleg.handle.request_reinspect(&"a".into());
    let start = Instant::now();
    assert_eq!(pleg.next().await.1, ["PodSync"]);
    assert!(start.elapsed() <= SECOND);
    // A hint before the fact.
    pleg.runtime.hint("a");
    sleep(SECOND / 10).await;
    pleg.runtime.run("a", &[("c", ContainerState::Exited)]);
    let start = Instant::now();
    assert_eq!(pleg.next().await.1, ["c ContainerDied"]);
    assert!(start.elapsed() <= 2 * SECOND);
    assert_eq!(pleg.runtime.calls("pods"), 1);
    // A pod that cannot be listed alone.
    pleg.runtime.fail_pod_list("a", true);
    pleg.runtime.remove("a");
    pleg.runtime.hint("a");
    let start = Instant::now();
    assert_eq!(pleg.next().await.1[0], "c ContainerRemoved");
    assert!(start.elapsed() <= SECOND);
    assert_eq!(pleg.runtime.calls("pods"), 2);
    pleg.runtime.fail_pod_list("a", false);

    sleep(3000 * SECOND).await;
    assert!(pleg.handle.healthy().is_ok(), "rest by design");
    assert_eq!(pleg.runtime.calls("pods"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reinspection_does_not_wait_for_a_rare_list() {
    let mut pleg = trusted().await;
    let start = Instant::now();
    pleg.handle.request_reinspect(&"first".into());
    assert_eq!(pleg.next().await, ("first".into(), vec!["PodSync".into()]));
    assert!(start.elapsed() <= SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_is_tried_again_while_lists_are_rare() {
    let mut pleg = trusted().await;
    pleg.runtime.fail_status("a", true);
    pleg.runtime.run("a", &[("c", ContainerState::Running)]);
    pleg.runtime.hint("a");
    let lists = pleg.runtime.calls("pods");
    pleg.runtime.called("status a", 8).await;
    assert!(pleg.seen("a").await.is_err(), "waiters wake with the error");
    assert!(pleg.runtime.calls("pods") <= lists + 1);
    pleg.runtime.fail_status("a", false);
    let start = Instant::now();
    assert_eq!(pleg.next().await.1[0], "c ContainerStarted");
    assert!(start.elapsed() <= 11 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn lists_of_single_pods_that_hang_or_fail_hold_up_nobody() {
    let mut pleg = trusted().await;
    pleg.pending().await;
    for index in 0..100 {
        let uid = format!("hung-{index}");
        pleg.runtime.hang_pod_list(&uid, true);
        pleg.runtime.run(&uid, &[]);
        pleg.runtime.hint(&uid);
    }
    pleg.runtime.fail_pod_list("failed", true);
    pleg.runtime.run("failed", &[]);
    pleg.runtime.hint("failed");
    let start = Instant::now();
    for _ in 0..101 {
        pleg.next().await;
    }
    assert!(start.elapsed() <= 2 * SECOND, "{:?}", start.elapsed());
    for index in 0..20 {
        pleg.runtime.hint(&format!("hung-{index}"));
    }
    pleg.runtime.run("z", &[]);
    pleg.runtime.hint("z");
    let start = Instant::now();
    assert_eq!(pleg.next().await.0, "z");
    assert!(start.elapsed() <= 2 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn rest_by_design_is_healthy_and_a_list_that_is_due_and_fails_is_not() {
    let pleg = trusted().await;
    for _ in 0..100 {
        sleep(10 * SECOND).await;
        assert!(pleg.handle.healthy().is_ok());
    }
    pleg.runtime.fail_lists(true);
    pleg.runtime.break_hints();
    pleg.runtime.hints(Hints::Refused);
    sleep(170 * SECOND).await;
    assert!(pleg.handle.healthy().is_ok());
    sleep(15 * SECOND).await;
    assert!(pleg.handle.healthy().is_err());
    pleg.runtime.fail_lists(false);
    pleg.relisted().await;
    assert!(pleg.handle.healthy().is_ok());
}

#[tokio::test(start_paused = true)]
async fn inspect_tells_how_it_does_and_what_hangs() {
    let pleg = told();
    pleg.relisted().await;
    pleg.runtime.hang_status("a", true);
    pleg.runtime.run("a", &[]);
    pleg.runtime.hang_pod_list("b", true);
    pleg.relisted().await;
    sleep(SECOND * 5 / 2).await;
    pleg.runtime.hang_lists(true);
    sleep(SECOND * 4).await;
    pleg.handle.request_relist(&"b".into());
    sleep(SECOND).await;
    let inspection = pleg.inspector.inspect().await.unwrap();
    assert_eq!((inspection.pods, inspection.unsettled_pods), (1, 1));
    assert_eq!(inspection.lag, SECOND);
    let hanging: Vec<_> = inspection
        .hanging
        .iter()
        .map(|hanging| (hanging.call, hanging.pod.as_ref().map(PodUid::as_str)))
        .collect();
    assert_eq!(hanging, [("GetPodStatus", Some("a")), ("GetPods", None)]);
    let text = inspection.to_string();
    assert!(
        text.starts_with("evented, unproven: 1 pods (1 unsettled), last relist "),
        "{text}"
    );
    assert!(text.contains("\nGetPodStatus hangs for 7.5s, pod a"), "{text}");
    let inspector = pleg.inspector.clone();
    pleg.stop().await;
    assert!(inspector.inspect().now_or_never().unwrap().is_none());
}
