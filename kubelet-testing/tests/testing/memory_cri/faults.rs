//! Faults of every kind, scripted and drawn.

use std::time::Duration;

use kubelet_cri::{Code, Error};
use kubelet_testing::MemoryCri;
use kubelet_testing::memory_cri::{Answer, Call, Latency};
use tokio::time::{Instant, timeout};

use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);

/// A runtime with a created container.
async fn created() -> (MemoryCri, String, String) {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = create(&runtime, &sandbox, "main", 0).await.unwrap();
    (runtime, sandbox, id)
}

#[tokio::test(start_paused = true)]
async fn a_call_fails_and_nothing_is_done() {
    let (runtime, _, id) = created().await;
    runtime
        .faults()
        .on(Call::StartContainer)
        .nth(1)
        .fails(Code::ResourceExhausted, "no room");
    assert_refused(start(&runtime, &id).await, Code::ResourceExhausted, "no room");
    assert_eq!(runtime.running(), [""; 0]);
    start(&runtime, &id).await.unwrap();
    assert_eq!(runtime.running(), ["web/main#0"]);
    assert_eq!(
        runtime.faults().injected().all(),
        ["StartContainer web/main#0: fails, ResourceExhausted"]
    );
    let answers: Vec<_> = runtime
        .calls()
        .matching("StartContainer")
        .into_iter()
        .map(|call| call.answer)
        .collect();
    assert_eq!(
        answers,
        [
            Answer::Failed(Error::call(
                Code::ResourceExhausted,
                "StartContainer",
                "",
                "no room"
            )),
            Answer::Ok,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_lost_late_or_never_comes_and_the_work_is_done() {
    let (runtime, sandbox, id) = created().await;
    let faults = runtime.faults();
    faults.on(Call::StartContainer).reply_lost();
    faults.on(Call::RemoveContainer).reply_hangs();
    faults.on(Call::CreateContainer).reply_delayed(5 * SECOND);
    faults
        .on(Call::StopContainer)
        .reply_fails(Code::Unknown, "context canceled");
    assert_refused(
        start(&runtime, &id).await,
        Code::Unavailable,
        "error reading from server: EOF",
    );
    assert_eq!(runtime.running(), ["web/main#0"]);
    assert_refused(stop(&runtime, &id, 0).await, Code::Unknown, "context canceled");
    assert_eq!(runtime.running(), [""; 0]);
    assert!(timeout(60 * SECOND, remove(&runtime, &id)).await.is_err());
    assert_eq!(runtime.containers(), []);
    assert_eq!(
        runtime.calls().matching("RemoveContainer")[0].answer,
        Answer::None
    );

    let begun = Instant::now();
    let given_up = timeout(SECOND, create(&runtime, &sandbox, "side", 0)).await;
    assert!(given_up.is_err());
    assert_eq!(runtime.containers().len(), 1, "it was made all the same");
    create(&runtime, &sandbox, "side", 1).await.unwrap();
    assert_eq!(begun.elapsed(), 6 * SECOND + 60 * SECOND - 60 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_call_hangs_until_it_is_given_up_and_nothing_is_done() {
    let (runtime, _, id) = created().await;
    runtime.faults().on(Call::StartContainer).nth(1).hangs();
    assert!(timeout(3600 * SECOND, start(&runtime, &id)).await.is_err());
    assert_eq!(fate(&runtime, &id).await.2, "", "nothing was tried");
    start(&runtime, &id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_is_slow() {
    let (runtime, _, id) = created().await;
    runtime.faults().on_any_call().pod("default/web").slow(3 * SECOND);
    let begun = Instant::now();
    start(&runtime, &id).await.unwrap();
    assert_eq!(begun.elapsed(), 3 * SECOND);
    run(&runtime, "other", 0).await.unwrap();
    assert_eq!(begun.elapsed(), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn faults_befall_whom_they_are_meant_for() {
    let runtime = instant();
    let faults = runtime.faults();
    faults
        .on(Call::StartContainer)
        .pod("web")
        .container("main")
        .nth(2)
        .fails(Code::Internal, "second");
    faults
        .on_each([Call::StopContainer, Call::RemoveContainer])
        .first(2)
        .fails(Code::Internal, "first two");
    faults
        .on(Call::PullImage)
        .image("busybox:1")
        .fails(Code::Internal, "image");
    let (web, other) = (
        run(&runtime, "web", 0).await.unwrap(),
        run(&runtime, "other", 0).await.unwrap(),
    );
    let mut failed = Vec::new();
    for (sandbox, name, attempt) in [
        (&other, "main", 0),
        (&web, "main", 0),
        (&web, "side", 0),
        (&web, "side", 1),
        (&web, "main", 1),
        (&web, "main", 2),
    ] {
        let id = create(&runtime, sandbox, name, attempt).await.unwrap();
        if start(&runtime, &id).await.is_err() {
            failed.push((name, attempt));
        }
    }
    assert_eq!(failed, [("main", 1)]);
    let id = runtime.containers()[0].id.clone();
    assert!(stop(&runtime, &id, 0).await.is_err());
    assert!(remove(&runtime, &id).await.is_err());
    remove(&runtime, &id).await.unwrap();
    assert!(pull(&runtime, "busybox:1", None).await.is_err());
    pull(&runtime, "busybox:2", None).await.unwrap();
    faults.clear();
    pull(&runtime, "busybox:1", None).await.unwrap();
    faults.injected().assert_count("StartContainer", 1);
}

/// The sandboxes that could not be created.
async fn draw(seed: u64, pods: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let runtime = builder().seed(seed).latency(Latency::none()).build();
    runtime
        .faults()
        .on(Call::RunPodSandbox)
        .rate(0.2)
        .fails(Code::Unavailable, "drawn");
    let mut failed = Vec::new();
    for pod in pods {
        if run(&runtime, &format!("pod-{pod}"), 0).await.is_err() {
            failed.push(pod);
        }
    }
    failed.sort_unstable();
    failed
}

#[tokio::test(start_paused = true)]
async fn what_is_drawn_follows_from_the_seed() {
    let first = draw(1, 0..200).await;
    assert!((20..60).contains(&first.len()), "{first:?}");
    assert_eq!(draw(1, 0..200).await, first);
    // In another order the same calls get the same faults.
    assert_eq!(draw(1, (0..200).rev()).await, first);
    assert_ne!(draw(2, 0..200).await, first);
    assert_eq!(draw(1, std::iter::repeat_n(7, 0)).await, [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn ids_follow_from_the_seed() {
    let id = async |seed| {
        let runtime = builder().seed(seed).build();
        run(&runtime, "web", 0).await.unwrap()
    };
    assert_eq!(id(1).await, id(1).await);
    assert_ne!(id(1).await, id(2).await);
}
