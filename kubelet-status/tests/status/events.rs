//! Events: their form against those that kubelet v1.36.2 was recorded to send, and their way to a sink that is slow,
//! forgetful or gone.
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use super::logged::Logged;
use async_trait::async_trait;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Event as ApiEvent, Pod};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, Event, EventRecorder, EventType, Jitter};
use kubelet_status::{EventBroadcaster, EventRecorderHandle, EventSink, EventSinkError};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Tells what it was asked, and answers as it was told to, then well.
#[derive(Clone)]
struct Sink {
    requests: mpsc::UnboundedSender<(Instant, &'static str, ApiEvent, Value)>,
    answers: Arc<Mutex<VecDeque<EventSinkError>>>,
}

impl Sink {
    fn answer(&self, call: &'static str, event: &ApiEvent, patch: Value) -> Result<(), EventSinkError> {
        self.requests
            .send((Instant::now(), call, event.clone(), patch))
            .unwrap();
        self.answers.lock().pop_front().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl EventSink for Sink {
    async fn create(&self, event: &ApiEvent) -> Result<(), EventSinkError> {
        self.answer("create", event, Value::Null)
    }

    async fn patch(&self, event: &ApiEvent, patch: &Value) -> Result<(), EventSinkError> {
        self.answer("patch", event, patch.clone())
    }
}

struct World {
    requests: mpsc::UnboundedReceiver<(Instant, &'static str, ApiEvent, Value)>,
    recorder: EventRecorderHandle,
    running: JoinHandle<()>,
}

impl World {
    fn new(answers: Vec<EventSinkError>) -> Self {
        Self::with(answers, |events| {
            events.with_clock(Clock::starting_at(Timestamp::from_second(1_700_000_000).unwrap()))
        })
    }

    fn with(answers: Vec<EventSinkError>, set: impl FnOnce(EventBroadcaster) -> EventBroadcaster) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let sink = Sink {
            requests: sender,
            answers: Arc::new(Mutex::new(answers.into())),
        };
        let events = set(EventBroadcaster::new(sink, "node1").with_jitter(Jitter::from_seed(1)));
        let recorder = events.handle();
        Self {
            requests,
            recorder,
            running: tokio::spawn(events.run(CancellationToken::new())),
        }
    }

    fn record(&self, message: &str) {
        let event = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "1"}});
        record(
            &self.recorder,
            &serde_json::from_value(event).unwrap(),
            None,
            "Normal",
            "Pulled",
            message,
        );
    }

    /// The next request, and when it came.
    async fn next(&mut self) -> (Instant, String) {
        let (at, call, event, patch) = self.requests.recv().await.unwrap();
        let message = event.message.unwrap();
        (
            at,
            if patch.is_null() {
                format!("{call} {message}")
            } else {
                format!("{call} {message} ×{}", patch["count"])
            },
        )
    }
}

fn record(
    recorder: &EventRecorderHandle,
    pod: &Pod,
    field_path: Option<&str>,
    kind: &str,
    reason: &str,
    message: &str,
) {
    recorder.record(Event {
        pod,
        field_path: field_path.map(str::to_owned),
        event_type: if kind == "Normal" {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason,
        message: message.to_owned(),
    });
}

fn away() -> EventSinkError {
    EventSinkError::NotReached("away".into())
}

#[tokio::test(start_paused = true)]
async fn every_recorded_event_is_the_same() {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("../data/events.jsonl.gz")[..])
        .read_to_string(&mut text)
        .unwrap();
    let mut events = 0;
    for line in text.lines() {
        let mut expected: Value = serde_json::from_str(line).unwrap();
        let about = &expected["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        // The name tells the time, to the nanosecond.
        let name = text(&expected["metadata"]["name"]);
        let nanos = i128::from_str_radix(name.rsplit_once('.').unwrap().1, 16).unwrap();
        let pod = json!({"metadata": {"name": about["name"], "namespace": about["namespace"], "uid": about["uid"],
            "resourceVersion": about["resourceVersion"]}});
        let clock = Clock::starting_at(Timestamp::from_nanosecond(nanos).unwrap());
        let mut world = World::with(vec![], |events| events.with_clock(clock));
        let (kind, reason, message) = (
            text(&expected["type"]),
            text(&expected["reason"]),
            text(&expected["message"]),
        );
        let pod = serde_json::from_value(pod).unwrap();
        record(
            &world.recorder,
            &pod,
            about["fieldPath"].as_str(),
            &kind,
            &reason,
            &message,
        );
        let (_, call, event, _) = world.requests.recv().await.unwrap();
        // Go writes it although it is not set.
        expected.as_object_mut().unwrap().remove("eventTime");
        assert_eq!((call, serde_json::to_value(event).unwrap()), ("create", expected));
        world.running.abort();
        events += 1;
    }
    assert_eq!(events, 324);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_again_is_patched_and_made_again_if_it_is_gone() {
    let mut world = World::new(vec![]);
    world.record("a");
    world.record("a");
    assert_eq!(world.next().await.1, "create a");
    assert_eq!(world.next().await.1, "patch a ×2");

    let (sender, requests) = mpsc::unbounded_channel();
    let answers = Arc::new(Mutex::new(VecDeque::new()));
    let sink = Sink {
        requests: sender,
        answers: answers.clone(),
    };
    let events = EventBroadcaster::new(sink, "node1");
    let recorder = events.handle();
    let mut world = World {
        requests,
        recorder,
        running: tokio::spawn(events.run(CancellationToken::new())),
    };
    world.record("a");
    assert_eq!(world.next().await.1, "create a");
    answers.lock().push_back(EventSinkError::NotFound);
    world.record("a");
    assert_eq!(world.next().await.1, "patch a ×2");
    assert_eq!(world.next().await.1, "create a");
}

#[tokio::test(start_paused = true)]
async fn an_absent_sink_is_tried_twelve_times_and_a_refusal_once() {
    let mut world = World::new(
        (0..12)
            .map(|_| away())
            .chain([EventSinkError::Refused("no".to_owned())])
            .collect(),
    );
    world.record("a");
    world.record("b");
    world.record("c");
    let mut tries = Vec::new();
    for _ in 0..12 {
        let (at, request) = world.next().await;
        assert_eq!(request, "create a");
        tries.push(at);
    }
    assert!(tries[1] - tries[0] < Duration::from_secs(10));
    for pair in tries[1..].windows(2) {
        assert_eq!((pair[1] - pair[0]).as_secs(), 10);
    }
    assert_eq!(world.next().await.1, "create b");
    assert_eq!(world.next().await.1, "create c");
}

#[tokio::test(start_paused = true)]
async fn events_of_a_namespace_that_is_deleted_are_dropped_without_an_alarm() {
    let (logged, _guard) = Logged::start();
    let refusals = [
        EventSinkError::NamespaceTerminating("shop is being terminated".to_owned()),
        EventSinkError::NotFound,
        EventSinkError::Refused("no".to_owned()),
    ];
    let mut world = World::new(refusals.into());
    for message in ["a", "b", "c", "d"] {
        world.record(message);
        assert_eq!(world.next().await.1, format!("create {message}"));
    }
    let dropped = "DEBUG Event dropped, its namespace no longer exists";
    assert_eq!(logged.lines("Event dropped"), [dropped, dropped]);
    assert_eq!(
        logged.lines("rejected"),
        ["ERROR Server rejected event (will not retry!)"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_thousand_events_wait_and_no_more() {
    let mut world = World::with(vec![], |events| events.with_rate(0, 0));
    for number in 0..1500 {
        // Of as many pods, so that none is spam.
        let pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "shop"}});
        record(
            &world.recorder,
            &serde_json::from_value(pod).unwrap(),
            None,
            "Normal",
            "Pulled",
            &number.to_string(),
        );
    }
    for number in 0..1000 {
        assert_eq!(world.next().await.1, format!("create {number}"));
    }
    world.record("later");
    assert_eq!(world.next().await.1, "create later");
}

#[tokio::test(start_paused = true)]
async fn no_more_are_sent_than_the_rate_allows() {
    let mut world = World::with(vec![], |events| events.with_rate(5, 10));
    for number in 0..20 {
        let pod = json!({"metadata": {"name": format!("p{number}"), "namespace": "shop"}});
        record(
            &world.recorder,
            &serde_json::from_value(pod).unwrap(),
            None,
            "Normal",
            "Pulled",
            "x",
        );
    }
    let start = Instant::now();
    let mut at = Vec::new();
    for _ in 0..20 {
        at.push((world.next().await.0 - start).as_millis());
    }
    assert_eq!(at[9], 0, "{at:?}");
    assert!((1999..=2010).contains(&at[19]), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rate_changes_while_it_runs() {
    let mut world = World::with(vec![], |events| events.with_rate(1, 1));
    let pods = |from: u32| (from..from + 3).map(|number| format!("p{number}"));
    let send = |world: &World, names: &mut dyn Iterator<Item = String>| {
        for name in names {
            let pod = json!({"metadata": {"name": name, "namespace": "shop"}});
            let pod = serde_json::from_value(pod).unwrap();
            record(&world.recorder, &pod, None, "Normal", "Pulled", "x");
        }
    };
    let mut took = Vec::new();
    for (from, change) in [(0, None), (3, Some((0, 0)))] {
        if let Some((qps, burst)) = change {
            world.recorder.set_rate(qps, burst);
        }
        let start = Instant::now();
        send(&world, &mut pods(from));
        for _ in 0..3 {
            world.next().await;
        }
        took.push(start.elapsed().as_secs());
    }
    assert_eq!(took, [2, 0], "slow, then without a limit");
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_nobody_can_record_any_more() {
    let World {
        requests,
        recorder,
        running,
    } = World::new(vec![]);
    drop(recorder);
    running.await.unwrap();
    drop(requests);
}

#[tokio::test(start_paused = true)]
async fn names_are_never_too_long_and_never_twice() {
    let mut world = World::new(vec![]);
    let name = format!("{}.x", "a".repeat(251));
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}})).unwrap();
    record(&world.recorder, &pod, None, "Normal", "Pulled", "a");
    record(&world.recorder, &pod, None, "Normal", "Pulled", "b");
    let mut names = Vec::new();
    for _ in 0..2 {
        names.push(world.requests.recv().await.unwrap().2.metadata.name.unwrap());
    }
    assert!(
        names[0] != names[1] && names.iter().all(|name| name.len() <= 253),
        "{names:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn annotations_are_those_of_the_event() {
    let mut world = World::new(vec![]);
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"}})).unwrap();
    let event = || Event::about(&pod, EventType::Warning, "Evicted", "low on memory");
    let annotations = BTreeMap::from([("starved_resource".to_owned(), "memory".to_owned())]);
    world.recorder.record_annotated(event(), annotations.clone());
    let (_, _, sent, _) = world.requests.recv().await.unwrap();
    assert_eq!(sent.metadata.annotations, Some(annotations));
    world
        .recorder
        .record(Event::about(&pod, EventType::Normal, "Pulled", "an image"));
    let (_, _, sent, _) = world.requests.recv().await.unwrap();
    assert_eq!(sent.metadata.annotations, None);
}
