//! The runtime in memory follows the contract of the five verbs, and its scripts.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, PodUid};
use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec, ErrorClass};
use kubelet_testing::{MemoryRuntime, Run};
use tokio::time::{Instant, advance, timeout};

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(30);

fn runtime(runs: impl IntoIterator<Item = Run>) -> MemoryRuntime {
    let runtime = MemoryRuntime::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
    runtime.script("main", runs);
    runtime
}

fn key(attempt: u32) -> ContainerKey {
    ContainerKey::new("uid", "main", attempt)
}

fn spec(attempt: u32) -> ContainerSpec {
    ContainerSpec::new(key(attempt), "busybox")
}

/// Its exit code, and the second it ended in.
async fn exit(runtime: &MemoryRuntime, attempt: u32) -> Option<(i32, i64)> {
    let container = runtime.inspect(&key(attempt)).await.unwrap();
    container
        .exit()
        .map(|exit| (exit.code, exit.finished_at.as_second()))
}

#[tokio::test(start_paused = true)]
async fn each_try_has_its_run_and_the_last_is_repeated() {
    let runtime = runtime([
        Run::exits(3).after(SECOND),
        Run::fails_to_start(ErrorClass::Throttled, "no room"),
        Run::forever(),
    ]);
    runtime.start(&spec(0)).await.unwrap();
    assert_eq!(exit(&runtime, 0).await, None);
    advance(5 * SECOND).await;
    assert_eq!(exit(&runtime, 0).await, Some((3, 1)));
    // Started before, so unchanged: running or ended.
    assert!(!runtime.start(&spec(0)).await.unwrap().is_running());

    let error = runtime.start(&spec(1)).await.unwrap_err();
    assert_eq!(
        (error.class, error.message.as_str()),
        (ErrorClass::Throttled, "no room")
    );
    assert_eq!(
        runtime.inspect(&key(1)).await.unwrap_err().class,
        ErrorClass::Gone
    );
    assert!(runtime.start(&spec(2)).await.unwrap().is_running());
    assert!(runtime.start(&spec(3)).await.unwrap().is_running());

    let tally = runtime.tally(&PodUid::from("uid"), "main");
    assert_eq!((tally.tries, tally.starts, tally.most_at_once), (4, 3, 2));
}

#[tokio::test(start_paused = true)]
async fn the_latest_script_that_applies_counts() {
    let runtime = runtime([Run::exits(1)]);
    runtime.script_where(
        |spec| spec.image == "busybox" && spec.command == ["sleep"],
        [Run::exits(2)],
    );
    runtime.start(&spec(0)).await.unwrap();
    let mut sleep = spec(1);
    sleep.command = vec!["sleep".into()];
    runtime.start(&sleep).await.unwrap();
    assert_eq!(exit(&runtime, 0).await, Some((1, 0)));
    assert_eq!(exit(&runtime, 1).await, Some((2, 0)));
}

#[tokio::test(start_paused = true)]
async fn stopping() {
    for (run, grace, expected) in [
        (Run::forever(), GRACE, (143, 0)),
        (Run::forever(), Duration::ZERO, (137, 0)),
        (Run::forever().stop_takes(SECOND, 0), GRACE, (0, 1)),
        (Run::forever().stop_takes(GRACE * 2, 0), GRACE, (137, 30)),
        (Run::forever().ignores_stop(), GRACE, (137, 30)),
        // Its own end comes first.
        (Run::exits(7).after(SECOND).ignores_stop(), GRACE, (7, 1)),
    ] {
        let runtime = runtime([run.clone()]);
        runtime.start(&spec(0)).await.unwrap();
        runtime.stop(&key(0), grace).await.unwrap();
        assert_eq!(
            exit(&runtime, 0).await,
            Some(expected),
            "{run:?}, grace {grace:?}"
        );
        runtime.remove(&key(0)).await.unwrap();
        runtime.remove(&key(0)).await.unwrap();
        runtime.stop(&key(0), grace).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_with_a_shorter_grace_is_heeded() {
    let runtime = runtime([Run::forever().ignores_stop()]);
    runtime.start(&spec(0)).await.unwrap();
    let begun = Instant::now();
    let (key, hurried) = (key(0), async {
        tokio::time::sleep(SECOND).await;
        runtime.stop(&key(0), 2 * SECOND).await
    });
    let (first, second) = tokio::join!(runtime.stop(&key, GRACE), hurried);
    first.unwrap();
    second.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn slow_and_hanging_calls_may_be_dropped() {
    let runtime = runtime([
        Run::forever().start_hangs(),
        Run::forever().start_takes(5 * SECOND),
        Run::forever().start_takes(5 * SECOND).stop_hangs(),
    ]);
    assert!(timeout(GRACE, runtime.start(&spec(0))).await.is_err());
    assert!(timeout(SECOND, runtime.start(&spec(1))).await.is_err());
    assert!(runtime.list().await.unwrap().is_empty());
    let begun = Instant::now();
    runtime.start(&spec(2)).await.unwrap();
    assert_eq!(begun.elapsed(), 5 * SECOND);
    assert!(
        timeout(2 * GRACE, runtime.stop(&key(2), Duration::ZERO))
            .await
            .is_err()
    );
    assert!(runtime.inspect(&key(2)).await.unwrap().is_running());
    assert_eq!(
        runtime.remove(&key(2)).await.unwrap_err().class,
        ErrorClass::Permanent
    );
}

#[tokio::test(start_paused = true)]
async fn two_starts_of_one_key_at_once_are_one() {
    let runtime = runtime([Run::forever().start_takes(SECOND)]);
    let spec = spec(0);
    let (one, other) = tokio::join!(runtime.start(&spec), runtime.start(&spec));
    assert_eq!(one.unwrap(), other.unwrap());
    let tally = runtime.tally(&PodUid::from("uid"), "main");
    assert_eq!((tally.starts, tally.most_at_once), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn away_and_back() {
    let runtime = runtime([]);
    runtime.start(&spec(0)).await.unwrap();
    runtime.go_away();
    assert_eq!(runtime.list().await.unwrap_err().class, ErrorClass::Transient);
    assert_eq!(
        runtime.start(&spec(1)).await.unwrap_err().class,
        ErrorClass::Transient
    );
    runtime.come_back();
    assert_eq!(runtime.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ends_are_told_and_waited_for() {
    let runtime = runtime([Run::exits(0).after(GRACE), Run::forever()]);
    let mut ended = runtime.events().unwrap().watch();
    runtime.start(&spec(0)).await.unwrap();
    runtime.start(&spec(1)).await.unwrap();
    assert_eq!(ended.next().await, Some(key(0)));
    let begun = Instant::now();
    let killing = async {
        tokio::time::sleep(SECOND).await;
        assert_eq!(runtime.end(&PodUid::from("uid"), "main", 137), 1);
    };
    let all_ended = runtime.wait_until("all ended", |runtime| {
        runtime
            .containers()
            .iter()
            .all(|container| !container.is_running())
    });
    let (reached, ()) = tokio::join!(all_ended, killing);
    reached.unwrap();
    assert_eq!(begun.elapsed(), SECOND);
    assert_eq!(ended.next().await, Some(key(1)));
    assert_eq!(exit(&runtime, 1).await, Some((137, 31)));

    let never = runtime.wait_until("a third container", |runtime| runtime.containers().len() == 3);
    assert_eq!(
        never.await.unwrap_err().to_string(),
        "a third container: not reached within 3600s"
    );
}
