//! Sequences of lists that were played to the kubelet v1.36, and the events it made of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

use super::fake::{FakeRuntime, Running, container, sandbox};
use flate2::read::GzDecoder;
use kubelet_core::runtime::{ContainerState, RuntimePod, SandboxState};
use kubelet_core::{PodKey, PodLifecycleEventType};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    case: u32,
    relists: Vec<Relist>,
}

#[derive(Deserialize)]
struct Relist {
    pods: Vec<Pod>,
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Pod {
    uid: String,
    containers: Vec<Member>,
    sandboxes: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    id: String,
    state: String,
}

#[derive(Deserialize)]
struct Event {
    uid: String,
    container: String,
    r#type: String,
}

type Events = BTreeMap<String, Vec<(String, PodLifecycleEventType)>>;

#[tokio::test(start_paused = true)]
async fn events_are_those_of_the_kubelet() {
    let recording = GzDecoder::new(&include_bytes!("../data/pleg-events.jsonl.gz")[..]);
    let mut count = 0;
    for line in BufReader::new(recording).lines() {
        let case: Case = serde_json::from_str(&line.unwrap()).unwrap();
        play(case).await;
        count += 1;
    }
    assert_eq!(count, 800);
}

async fn play(case: Case) {
    let runtime = FakeRuntime::default();
    let mut pleg = Running::with(runtime.clone(), |pleg| pleg);
    for (step, relist) in case.relists.into_iter().enumerate() {
        let of_case = format!("case {}, relist {step}", case.case);
        runtime.clear();
        for pod in &relist.pods {
            runtime.put(runtime_pod(pod));
        }
        pleg.all_seen(relist.pods.iter().map(|pod| pod.uid.as_str()))
            .await;
        for pod in &relist.pods {
            let status = pleg.cache.get(&pod.uid.as_str().into()).unwrap();
            assert_eq!(
                status.containers.len(),
                pod.containers.len(),
                "{of_case}: {}",
                pod.uid
            );
        }
        let mut told = Events::new();
        for (uid, container, event_type) in pleg.pending().await {
            told.entry(uid).or_default().push((container, event_type));
        }
        let mut expected = Events::new();
        for event in relist.events {
            let of_pod = expected.entry(event.uid).or_default();
            of_pod.push((event.container, event_type(&event.r#type)));
        }
        assert_eq!(told, expected, "{of_case}");
    }
    pleg.stop().await;
}

fn runtime_pod(pod: &Pod) -> RuntimePod {
    let mut listed = RuntimePod::empty(pod.uid.as_str().into(), PodKey::new("default", &pod.uid));
    for member in &pod.containers {
        let state = match member.state.as_str() {
            "created" => ContainerState::Created,
            "running" => ContainerState::Running,
            "exited" => ContainerState::Exited,
            "unknown" => ContainerState::Unknown,
            other => panic!("state {other}"),
        };
        listed.containers.push(container(&member.id, state));
    }
    for member in &pod.sandboxes {
        let state = match member.state.as_str() {
            "running" => SandboxState::Ready,
            "exited" => SandboxState::NotReady,
            other => panic!("sandbox state {other}"),
        };
        listed.sandboxes.push(sandbox(&member.id, state));
    }
    listed
}

fn event_type(name: &str) -> PodLifecycleEventType {
    use PodLifecycleEventType::*;
    match name {
        "ContainerStarted" => ContainerStarted,
        "ContainerDied" => ContainerDied,
        "ContainerRemoved" => ContainerRemoved,
        "ContainerChanged" => ContainerChanged,
        "PodSync" => PodSync,
        other => panic!("event {other}"),
    }
}
