//! Latencies of calls. The state changes when due, even if the next call comes later.

use std::time::Duration;

use kubelet_cri::{Code, RuntimeService, v1};
use kubelet_testing::Run;
use kubelet_testing::memory_cri::{Call, Latency, RemoteImage};
use tokio::time::{Instant, advance, timeout};

use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The result of a call, and how long it takes.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let answer = call.await;
    (answer, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn calls_take_the_time_that_they_take_of_containerd() {
    let runtime = with_image(builder().build());
    let (sandbox, took) = timed(run(&runtime, "web", 0)).await;
    assert_eq!(took, millis(70));
    let sandbox = sandbox.unwrap();
    let (id, took) = timed(create(&runtime, &sandbox, "main", 0)).await;
    assert_eq!(took, millis(6));
    let id = id.unwrap();
    assert_eq!(timed(start(&runtime, &id)).await.1, millis(46));
    assert_eq!(timed(status(&runtime, &id)).await.1, millis(1));
    runtime.publish(RemoteImage::new("big:1").pull_takes(20 * SECOND));
    assert_eq!(timed(pull(&runtime, "big:1", None)).await.1, 20 * SECOND);
    assert_eq!(timed(pull(&runtime, "small:1", None)).await.1, millis(500));

    let runtime = with_image(
        builder()
            .latency(Latency::none().of(Call::RunPodSandbox, 4 * SECOND))
            .build(),
    );
    assert_eq!(timed(run(&runtime, "web", 0)).await.1, 4 * SECOND);
    let sandbox = runtime.sandboxes()[0].id.clone();
    assert_eq!(
        timed(started(&runtime, &sandbox, "main", 0)).await.1,
        Duration::ZERO
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_its_container() {
    let runtime = instant();
    runtime.script(
        "main",
        [
            Run::forever(),
            Run::forever().stop_takes(3 * SECOND, 0),
            Run::forever().stop_takes(60 * SECOND, 0),
            Run::forever().ignores_stop(),
            Run::exits(4).after(2 * SECOND).ignores_stop(),
        ],
    );
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    for (attempt, takes, code, reason) in [
        (0, 0, 143, "Error"),
        (1, 3, 0, "Completed"),
        (2, 10, 137, "Error"),
        (3, 10, 137, "Error"),
        (4, 2, 4, "Error"),
    ] {
        let id = started(&runtime, &sandbox, "main", attempt).await;
        let (stopped, took) = timed(stop(&runtime, &id, 10)).await;
        stopped.unwrap();
        assert_eq!(took, takes * SECOND, "{attempt}");
        let (_, code_of, reason_of) = fate(&runtime, &id).await;
        assert_eq!((code_of, reason_of.as_str()), (code, reason), "{attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_given_up_has_sent_its_sigterm_and_sends_no_more() {
    let runtime = instant();
    runtime.script("soft", [Run::forever().stop_takes(20 * SECOND, 0)]);
    runtime.script("hard", [Run::forever().ignores_stop()]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let (soft, hard) = (
        started(&runtime, &sandbox, "soft", 0).await,
        started(&runtime, &sandbox, "hard", 0).await,
    );
    for id in [&soft, &hard] {
        assert!(timeout(5 * SECOND, stop(&runtime, id, 30)).await.is_err());
    }
    advance(600 * SECOND).await;
    assert_eq!(fate(&runtime, &soft).await.1, 0);
    let soft = status(&runtime, &soft).await.unwrap();
    assert_eq!(soft.finished_at - soft.started_at, 20_000_000_000);
    assert_eq!(runtime.running(), ["web/hard#0"]);

    // A second stop without grace period ends the first one's wait.
    let (patient, impatient) = tokio::join!(timed(stop(&runtime, &hard, 30)), async {
        tokio::time::sleep(SECOND).await;
        stop(&runtime, &hard, 0).await
    });
    impatient.unwrap();
    assert_eq!(patient.1, SECOND);
}

#[tokio::test(start_paused = true)]
async fn what_not_even_sigkill_ends_hangs() {
    let runtime = instant();
    runtime.script("main", [Run::forever().stop_hangs()]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = started(&runtime, &sandbox, "main", 0).await;
    assert!(timeout(600 * SECOND, stop(&runtime, &id, 1)).await.is_err());
    assert!(
        timeout(600 * SECOND, stop_sandbox(&runtime, &sandbox))
            .await
            .is_err()
    );
    assert_eq!(runtime.running(), ["web/main#0"]);
    // Whatever held it has let go.
    runtime.end(&uid("web"), "main", 137);
    remove_sandbox(&runtime, &sandbox).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn ends_are_seen_when_they_are_due_and_not_before() {
    let runtime = instant();
    runtime.script("main", [Run::exits(3).after(1800 * SECOND)]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = started(&runtime, &sandbox, "main", 0).await;
    advance(1800 * SECOND - millis(1)).await;
    assert_eq!(fate(&runtime, &id).await.0, v1::ContainerState::ContainerRunning);
    // The next call comes much later, but the end time is the real one.
    advance(7200 * SECOND).await;
    let status = status(&runtime, &id).await.unwrap();
    assert_eq!(
        (status.exit_code, status.finished_at - status.started_at),
        (3, 1_800_000_000_000)
    );
}

#[tokio::test(start_paused = true)]
async fn stats_follow_from_the_script_and_the_time() {
    let runtime = instant();
    runtime.script("main", [Run::forever().uses(250, 64 << 20)]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = started(&runtime, &sandbox, "main", 0).await;
    let created = create(&runtime, &sandbox, "side", 0).await.unwrap();
    advance(60 * SECOND).await;
    let stats = |id: &str| {
        runtime.container_stats(v1::ContainerStatsRequest {
            container_id: id.to_owned(),
        })
    };
    let main = stats(&id).await.unwrap().stats.unwrap();
    assert_eq!(
        main.cpu.unwrap().usage_core_nano_seconds.unwrap().value,
        15_000_000_000
    );
    assert_eq!(main.memory.unwrap().working_set_bytes.unwrap().value, 64 << 20);
    assert_refused(
        stats(&created).await,
        Code::Unknown,
        "unexpected metrics response: []",
    );
    assert_refused(
        stats("nope").await,
        Code::NotFound,
        "failed to find container: not found",
    );

    let all = runtime
        .list_container_stats(v1::ListContainerStatsRequest::default())
        .await
        .unwrap()
        .stats;
    assert_eq!(
        all.iter().map(|stats| stats.cpu.is_some()).collect::<Vec<_>>(),
        [true, false]
    );

    let of = |id: &str| {
        runtime.pod_sandbox_stats(v1::PodSandboxStatsRequest {
            pod_sandbox_id: id.to_owned(),
        })
    };
    let pod = of(&sandbox).await.unwrap().stats.unwrap().linux.unwrap();
    assert_eq!(pod.cpu.unwrap().usage_nano_cores.unwrap().value, 250_000_000);
    assert_eq!(
        (
            pod.containers.len(),
            pod.process.unwrap().process_count.unwrap().value
        ),
        (1, 2)
    );
    stop_sandbox(&runtime, &sandbox).await.unwrap();
    assert_refused(of(&sandbox).await, Code::Unavailable, "is not in ready state");
    assert_refused(
        of("nope").await,
        Code::NotFound,
        "an error occurred when trying to find sandbox nope: not found",
    );
}
