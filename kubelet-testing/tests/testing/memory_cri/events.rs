//! Container events: as containerd 2.1.9 sends them, and with faults.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet_cri::{RuntimeService, v1};
use kubelet_testing::memory_cri::Latency;
use kubelet_testing::{MemoryCri, Run};
use tokio::time::{Instant, advance, timeout};
use v1::ContainerEventType::{
    ContainerCreatedEvent, ContainerDeletedEvent, ContainerStartedEvent, ContainerStoppedEvent,
};

use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);

type Events = BoxStream<'static, Result<v1::ContainerEventResponse>>;

async fn watch(runtime: &MemoryCri) -> Events {
    runtime
        .get_container_events(v1::GetEventsRequest {})
        .await
        .unwrap()
}

/// All that has come, each as `STOPPED main ready 10.88.0.2 [main#0 EXITED 3]`.
async fn told(runtime: &MemoryCri, events: &mut Events) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(event) = timeout(Duration::ZERO, events.next()).await {
        told.push(tell(runtime, &event.unwrap().unwrap()));
    }
    told
}

fn tell(runtime: &MemoryCri, event: &v1::ContainerEventResponse) -> String {
    let kind = event.container_event_type().as_str_name();
    let kind = kind.trim_start_matches("CONTAINER_").trim_end_matches("_EVENT");
    let all = runtime.containers();
    let names = event.containers_statuses.iter().chain(&all);
    let whose = names
        .filter(|status| status.id == event.container_id)
        .map(|status| status.metadata.clone().unwrap().name)
        .next();
    let sandbox = event
        .pod_sandbox_status
        .as_ref()
        .map_or("none".to_owned(), |sandbox| {
            let ready = if sandbox.state() == v1::PodSandboxState::SandboxReady {
                "ready"
            } else {
                "notready"
            };
            format!("{ready} {}", sandbox.network.clone().unwrap().ip)
        });
    let containers: Vec<_> = event
        .containers_statuses
        .iter()
        .map(|status| {
            let metadata = status.metadata.clone().unwrap();
            let state = status
                .state()
                .as_str_name()
                .trim_start_matches("CONTAINER_")
                .to_owned();
            format!(
                "{}#{} {state} {}",
                metadata.name, metadata.attempt, status.exit_code
            )
        })
        .collect();
    format!(
        "{kind} {} {sandbox} [{}]",
        whose.as_deref().unwrap_or("-"),
        containers.join(", ")
    )
}

#[tokio::test(start_paused = true)]
async fn a_pod_from_its_first_event_to_its_last() {
    let runtime = instant();
    runtime.script("main", [Run::exits(7), Run::forever()]);
    let mut events = watch(&runtime).await;
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    assert_eq!(
        told(&runtime, &mut events).await,
        ["CREATED - ready 10.88.0.2 []", "STARTED - ready 10.88.0.2 []"]
    );
    let first = started(&runtime, &sandbox, "main", 0).await;
    assert_eq!(
        told(&runtime, &mut events).await,
        [
            "CREATED main ready 10.88.0.2 [main#0 CREATED 0]",
            "STARTED main ready 10.88.0.2 [main#0 RUNNING 0]",
            "STOPPED main ready 10.88.0.2 [main#0 EXITED 7]",
        ]
    );
    started(&runtime, &sandbox, "main", 1).await;
    create(&runtime, &sandbox, "side", 0).await.unwrap();
    remove(&runtime, &first).await.unwrap();
    assert_eq!(
        told(&runtime, &mut events).await,
        [
            "CREATED main ready 10.88.0.2 [main#0 EXITED 7, main#1 CREATED 0]",
            "STARTED main ready 10.88.0.2 [main#0 EXITED 7, main#1 RUNNING 0]",
            "CREATED side ready 10.88.0.2 [main#0 EXITED 7, main#1 RUNNING 0, side#0 CREATED 0]",
            "DELETED - ready 10.88.0.2 [main#1 RUNNING 0, side#0 CREATED 0]",
        ]
    );
    remove_sandbox(&runtime, &sandbox).await.unwrap();
    assert_eq!(
        told(&runtime, &mut events).await,
        [
            "STOPPED main ready 10.88.0.2 [main#1 EXITED 137, side#0 CREATED 0]",
            "STOPPED - notready 10.88.0.2 [main#1 EXITED 137, side#0 CREATED 0]",
            "DELETED - notready  [side#0 CREATED 0]",
            "DELETED - notready  []",
            "DELETED - notready  []",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_tells_nothing() {
    let runtime = instant();
    runtime.script(
        "broken",
        [Run::fails_to_start(
            kubelet_cri::verbs::ErrorClass::Permanent,
            "no",
        )],
    );
    run(&runtime, "before", 0).await.unwrap();
    let mut events = watch(&runtime).await;
    let mut config = sandbox_config("host", 0);
    config.linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                network: v1::NamespaceMode::Node as i32,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    let sandbox = run_config(&runtime, config).await.unwrap();
    let id = create(&runtime, &sandbox, "broken", 0).await.unwrap();
    start(&runtime, &id).await.unwrap_err();
    // No earlier events, no creation of a sandbox on the host's network, no end of a container that did not start.
    assert_eq!(
        told(&runtime, &mut events).await,
        [
            "STARTED - ready  []",
            "CREATED broken ready  [broken#0 CREATED 0]"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_sleeps_until_something_happens() {
    let runtime = instant();
    runtime.script("main", [Run::exits(0).after(3600 * SECOND)]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    advance(SECOND).await;
    started(&runtime, &sandbox, "main", 0).await;
    let (mut one, mut other) = (watch(&runtime).await, watch(&runtime).await);
    let begun = Instant::now();
    for events in [&mut one, &mut other] {
        let event = events.next().await.unwrap().unwrap();
        assert_eq!(event.container_event_type(), ContainerStoppedEvent);
        assert_eq!(event.created_at, 1_000_001_000_000_000 + 3_600_000_000_000);
    }
    assert_eq!(begun.elapsed(), 3600 * SECOND);
    drop(one);
    // Another call wakes it.
    let (event, _) = tokio::join!(other.next(), async {
        tokio::time::sleep(SECOND).await;
        run(&runtime, "late", 0).await
    });
    assert_eq!(
        event.unwrap().unwrap().container_event_type(),
        ContainerCreatedEvent
    );
    assert_eq!(begun.elapsed(), 3601 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_does_not_read_loses_what_is_too_much() {
    let runtime = builder().latency(Latency::none()).build();
    let mut events = watch(&runtime).await;
    for pod in 0..600 {
        run(&runtime, &format!("pod-{pod}"), 0).await.unwrap();
    }
    assert_eq!(told(&runtime, &mut events).await.len(), 1000);
    run(&runtime, "web", 0).await.unwrap();
    assert_eq!(told(&runtime, &mut events).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn events_are_lost_doubled_late_and_reordered() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let faults = runtime.faults();
    faults.on_event(ContainerCreatedEvent).container("lost").lost();
    faults
        .on_event(ContainerCreatedEvent)
        .container("twice")
        .doubled();
    faults
        .on_event(ContainerCreatedEvent)
        .container("late")
        .late(5 * SECOND);
    faults
        .on_event(ContainerCreatedEvent)
        .container("overtaken")
        .reordered();
    faults.on_event(ContainerStartedEvent).nth(2).lost();
    let mut events = watch(&runtime).await;
    let kinds = async |events: &mut Events| {
        let told = told(&runtime, events).await;
        told.iter()
            .map(|event| event.split(" ready").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    create(&runtime, &sandbox, "lost", 0).await.unwrap();
    assert_eq!(kinds(&mut events).await, [""; 0]);
    started(&runtime, &sandbox, "twice", 0).await;
    assert_eq!(
        kinds(&mut events).await,
        ["CREATED twice", "CREATED twice", "STARTED twice"]
    );
    started(&runtime, &sandbox, "late", 0).await;
    assert_eq!(
        kinds(&mut events).await,
        [""; 0],
        "the second of the starts is lost"
    );
    advance(5 * SECOND).await;
    assert_eq!(kinds(&mut events).await, ["CREATED late"]);
    started(&runtime, &sandbox, "overtaken", 0).await;
    assert_eq!(
        kinds(&mut events).await,
        ["STARTED overtaken", "CREATED overtaken"]
    );
    create(&runtime, &sandbox, "overtaken", 1).await.unwrap();
    assert_eq!(kinds(&mut events).await, [""; 0]);
    advance(SECOND).await;
    assert_eq!(
        kinds(&mut events).await,
        ["CREATED overtaken"],
        "nothing came to overtake it"
    );
    faults.injected().assert_order([
        "CONTAINER_CREATED_EVENT web/lost#0: lost",
        "CONTAINER_CREATED_EVENT web/twice#0: doubled",
        "CONTAINER_CREATED_EVENT web/late#0: late by 5s",
        "CONTAINER_STARTED_EVENT web/late#0: lost",
        "CONTAINER_CREATED_EVENT web/overtaken#0: reordered",
    ]);
    faults.on_any_event().rate(1.0).lost();
    remove_sandbox(&runtime, &sandbox).await.unwrap();
    assert_eq!(kinds(&mut events).await, [""; 0]);
    faults
        .injected()
        .assert_order([ContainerDeletedEvent.as_str_name()]);
}
