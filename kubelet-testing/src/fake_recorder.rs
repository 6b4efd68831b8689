//! A recorder that keeps all events.

use std::sync::Arc;

use kubelet_core::{Event, EventRecorder, EventType, PodExt, PodKey, PodUid};
use tokio::sync::watch;
use tokio::time::Instant;

/// A recorded event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// The time, on tokio's clock.
    pub at: Instant,
    /// The pod of the event.
    pub pod: PodKey,
    /// The pod's UID.
    pub uid: PodUid,
    /// The part of the pod, e.g. `spec.containers{main}`.
    pub field_path: Option<String>,
    /// `Normal` or `Warning`.
    pub event_type: EventType,
    /// One word, e.g. `BackOff`.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// Keeps all events in memory, in order and without aggregation. Clones share them. Corresponds to client-go's
/// `record.FakeRecorder`.
///
/// ```
/// use kubelet_core::{Event, EventRecorder, EventType};
/// use kubelet_testing::{FakeRecorder, PodBuilder, wait_until};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> kubelet_testing::Result<()> {
/// let recorder = FakeRecorder::new();
/// let pod = PodBuilder::new("web").build();
/// recorder.record(Event {
///     pod: &pod,
///     field_path: Some("spec.containers{main}".into()),
///     event_type: EventType::Warning,
///     reason: "BackOff",
///     message: "Back-off restarting failed container".into(),
/// });
/// wait_until(recorder.watch(), "a back-off", |events| events.iter().any(|event| event.reason == "BackOff")).await?;
/// assert_eq!(recorder.count("BackOff"), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FakeRecorder {
    events: Arc<watch::Sender<Vec<RecordedEvent>>>,
}

impl FakeRecorder {
    /// A recorder without events.
    pub fn new() -> Self {
        Self {
            events: Arc::new(watch::Sender::new(Vec::new())),
        }
    }

    /// All events, in order.
    pub fn all(&self) -> Vec<RecordedEvent> {
        self.events.borrow().clone()
    }

    /// The reasons of all events about a pod, in order.
    pub fn reasons(&self, uid: &PodUid) -> Vec<String> {
        let events = self.events.borrow();
        events
            .iter()
            .filter(|event| event.uid == *uid)
            .map(|event| event.reason.clone())
            .collect()
    }

    /// The number of events with this reason.
    pub fn count(&self, reason: &str) -> usize {
        self.events
            .borrow()
            .iter()
            .filter(|event| event.reason == reason)
            .count()
    }

    /// A receiver that changes with every event, for [`wait_until`](crate::wait_until).
    pub fn watch(&self) -> watch::Receiver<Vec<RecordedEvent>> {
        self.events.subscribe()
    }
}

impl Default for FakeRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl EventRecorder for FakeRecorder {
    fn record(&self, event: Event<'_>) {
        let recorded = RecordedEvent {
            at: Instant::now(),
            pod: event.pod.key(),
            uid: event.pod.uid(),
            field_path: event.field_path,
            event_type: event.event_type,
            reason: event.reason.to_owned(),
            message: event.message,
        };
        self.events.send_modify(|events| events.push(recorded));
    }
}
