//! The runtime crashes and comes back, with and without its containers.

use std::time::Duration;

use futures::StreamExt;
use kubelet_cri::{Code, RuntimeService, v1};
use kubelet_testing::Run;
use kubelet_testing::memory_cri::Call;
use tokio::time::{Instant, advance};

use super::rig::*;
use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_crash_keeps_its_containers() {
    let runtime = instant();
    runtime.script("short", [Run::exits(3).after(10 * SECOND)]);
    runtime.script("patient", [Run::forever().ignores_stop()]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let long = started(&runtime, &sandbox, "long", 0).await;
    let short = started(&runtime, &sandbox, "short", 0).await;
    let patient = started(&runtime, &sandbox, "patient", 0).await;
    let mut events = runtime
        .get_container_events(v1::GetEventsRequest {})
        .await
        .unwrap();

    let crashed = async {
        tokio::time::sleep(SECOND).await;
        runtime.crash_for(60 * SECOND);
    };
    let begun = Instant::now();
    let (stopped, event, ()) = tokio::join!(stop(&runtime, &patient, 30), events.next(), crashed);
    assert_eq!(begun.elapsed(), SECOND, "what is under way is cut off");
    assert_refused(stopped, Code::Unavailable, "EOF");
    assert_refused(event.unwrap(), Code::Unavailable, "EOF");
    assert!(events.next().await.is_none());

    assert_refused(
        status(&runtime, &long).await,
        Code::Unavailable,
        "the runtime is away",
    );
    advance(59 * SECOND).await;
    assert_refused(
        status(&runtime, &long).await,
        Code::Unavailable,
        "the runtime is away",
    );
    assert_refused(
        runtime
            .get_container_events(v1::GetEventsRequest {})
            .await
            .map(|_| ()),
        Code::Unavailable,
        "away",
    );
    advance(SECOND).await;
    assert_eq!(fate(&runtime, &long).await.0, ContainerRunning);
    let ended = status(&runtime, &short).await.unwrap();
    assert_eq!(
        (ended.exit_code, ended.finished_at - ended.started_at),
        (3, 10_000_000_000)
    );
    // The SIGTERM was sent, but the runtime crashed before the SIGKILL.
    assert_eq!(fate(&runtime, &patient).await.0, ContainerRunning);

    runtime.crash();
    advance(86_400 * SECOND).await;
    assert!(status(&runtime, &long).await.is_err());
    runtime.come_back();
    assert_eq!(fate(&runtime, &long).await.0, ContainerRunning);
    runtime.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_after_a_reboot() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    advance(SECOND).await;
    let main = started(&runtime, &sandbox, "main", 0).await;
    let created = create(&runtime, &sandbox, "side", 0).await.unwrap();
    runtime.reboot(30 * SECOND);
    assert_eq!(runtime.running(), [""; 0]);
    assert!(status(&runtime, &main).await.is_err());
    advance(30 * SECOND).await;
    assert_eq!(
        fate(&runtime, &main).await,
        (ContainerExited, 255, "Unknown".into())
    );
    let ended = status(&runtime, &main).await.unwrap();
    assert_eq!(ended.finished_at - ended.started_at, 30_000_000_000);
    assert_eq!(fate(&runtime, &created).await.0, ContainerCreated);
    let status = sandbox_status(&runtime, &sandbox).await.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    let late = create(&runtime, &sandbox, "late", 0).await.unwrap();
    assert!(start(&runtime, &late).await.is_err());
    // The image is still there.
    let sandbox = run(&runtime, "web", 1).await.unwrap();
    started(&runtime, &sandbox, "main", 1).await;
    runtime.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_or_after_the_work_of_a_call() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = create(&runtime, &sandbox, "main", 0).await.unwrap();
    let faults = runtime.faults();
    faults.on(Call::StartContainer).nth(1).crashes(5 * SECOND);
    faults
        .on(Call::StartContainer)
        .nth(2)
        .crashes_after_work(5 * SECOND);
    for state in [ContainerCreated, ContainerRunning] {
        assert_refused(start(&runtime, &id).await, Code::Unavailable, "EOF");
        assert_refused(start(&runtime, &id).await, Code::Unavailable, "away");
        advance(5 * SECOND).await;
        assert_eq!(fate(&runtime, &id).await.0, state);
    }
    assert_eq!(
        faults.injected().all(),
        [
            "StartContainer web/main#0: crash for 5s",
            "StartContainer web/main#0: crash after work for 5s"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_in_the_midst_of_a_call_undoes_it() {
    let runtime = with_image(builder().build());
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = create(&runtime, &sandbox, "main", 0).await.unwrap();
    let crash = async {
        tokio::time::sleep(Duration::from_millis(3)).await;
        runtime.crash_for(SECOND);
    };
    let (one, two, three, ()) = tokio::join!(
        run(&runtime, "db", 0),
        create(&runtime, &sandbox, "side", 0),
        start(&runtime, &id),
        crash
    );
    for answer in [one.map(|_| ()), two.map(|_| ()), three] {
        assert_refused(answer, Code::Unavailable, "EOF");
    }
    advance(SECOND).await;
    assert_eq!((runtime.sandboxes().len(), runtime.containers().len()), (1, 1));
    start(&runtime, &id).await.unwrap();
    create(&runtime, &sandbox, "side", 0).await.unwrap();
    run(&runtime, "db", 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_runtime_or_its_network_is_not_ready() {
    let runtime = instant();
    let conditions = async || {
        let status = runtime
            .status(v1::StatusRequest::default())
            .await
            .unwrap()
            .status
            .unwrap();
        let told = |condition: v1::RuntimeCondition| {
            (
                condition.r#type,
                condition.status,
                condition.reason,
                condition.message,
            )
        };
        status.conditions.into_iter().map(told).collect::<Vec<_>>()
    };
    let ready = |kind: &str| (kind.to_owned(), true, String::new(), String::new());
    assert_eq!(conditions().await, [ready("RuntimeReady"), ready("NetworkReady")]);
    runtime.set_network_trouble(Some("cni plugin not initialized"));
    let message = "Network plugin returns error: cni plugin not initialized".to_owned();
    let network = (
        "NetworkReady".to_owned(),
        false,
        "NetworkPluginNotReady".to_owned(),
        message,
    );
    assert_eq!(conditions().await, [ready("RuntimeReady"), network]);
    assert_refused(
        run(&runtime, "web", 0).await,
        Code::Unknown,
        "cni plugin not initialized",
    );
    runtime.set_network_trouble(None);
    runtime.set_runtime_trouble(Some("shutting down"));
    assert!(!conditions().await[0].1);
    run(&runtime, "web", 0).await.unwrap();
}
