//! Events on their way to where they are kept.

mod correlator;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Event as ApiEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_core::{
    Clock, Event, EventRecorder, EventType, Jitter, NodeEventRecorder, PodExt, clock::api_time,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::correlator::{Correlated, EventCorrelator};
use crate::token_bucket::RateLimit;

/// How many events may wait (`maxQueuedEvents`).
const QUEUED: usize = 1000;
/// How often one is tried (`maxTriesPerEvent`).
const TRIES: u32 = 12;
/// The wait before it is tried again (`defaultSleepDuration`); the first is some part of it.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The longest that a sink may take for one.
const SINK_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest name of an object (`DNS1123SubdomainMaxLength`).
const MAX_NAME: usize = 253;

/// Where events are kept: an API server, or something of your own.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Makes an event.
    async fn create(&self, event: &ApiEvent) -> Result<(), EventSinkError>;

    /// Changes an event that was made before, by a strategic merge patch: it came once more.
    async fn patch(&self, event: &ApiEvent, patch: &Value) -> Result<(), EventSinkError>;
}

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventSinkError {
    /// What is to be changed is not there any more: the event is made again.
    #[error("the event is gone")]
    NotFound,
    /// It is refused, and would be refused again.
    #[error("refused: {0}")]
    Refused(String),
    /// It may be taken later.
    #[error("not reached: {0}")]
    NotReached(Box<dyn std::error::Error + Send + Sync>),
}

/// Brings the events of an agent to an [`EventSink`]: counts those that come again, combines those that differ in their
/// message alone, cuts bursts about one object, and keeps to a rate, as client-go's `EventBroadcaster` does for the
/// kubelet.
///
/// Whoever [records](EventRecorderHandle) an event never waits: 1,000 may be on their way, the next are dropped, said in
/// the log. Each is tried 12 times, about every 10 s, and then given up.
///
/// ```
/// use async_trait::async_trait;
/// use k8s_openapi::api::core::v1::{Event as ApiEvent, Pod};
/// use kubelet_core::{Event, EventRecorder, EventType};
/// use kubelet_status::{EventBroadcaster, EventSink, EventSinkError};
/// use serde_json::Value;
/// use tokio::sync::mpsc;
/// use tokio_util::sync::CancellationToken;
///
/// /// Tells in one line what is new and what came again.
/// struct Lines(mpsc::UnboundedSender<String>);
///
/// #[async_trait]
/// impl EventSink for Lines {
///     async fn create(&self, event: &ApiEvent) -> Result<(), EventSinkError> {
///         self.0.send(format!("new: {}", event.message.as_deref().unwrap_or_default())).ok();
///         Ok(())
///     }
///     async fn patch(&self, _: &ApiEvent, patch: &Value) -> Result<(), EventSinkError> {
///         self.0.send(format!("again: {}", patch["count"])).ok();
///         Ok(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (sender, mut lines) = mpsc::unbounded_channel();
/// let events = EventBroadcaster::new(Lines(sender), "node-1");
/// let recorder = events.handle();
/// let running = tokio::spawn(events.run(CancellationToken::new()));
/// for _ in 0..2 {
///     recorder.record(Event::about(&Pod::default(), EventType::Warning, "FailedMount", "no such disk"));
/// }
/// assert_eq!(lines.recv().await.unwrap(), "new: no such disk");
/// assert_eq!(lines.recv().await.unwrap(), "again: 2");
/// # running.abort();
/// # }
/// ```
pub struct EventBroadcaster {
    sink: Box<dyn EventSink>,
    handle: EventRecorderHandle,
    queue: mpsc::Receiver<Box<ApiEvent>>,
    rate: (u32, u32),
    jitter: Jitter,
}

/// Records events for an [`EventBroadcaster`]. Clones are the same recorder.
#[derive(Clone, Debug)]
pub struct EventRecorderHandle {
    /// Boxed, since a queue keeps the room of many that waited once.
    queue: mpsc::Sender<Box<ApiEvent>>,
    source: Arc<EventSource>,
    clock: Clock,
    /// Names are made of times; no two events have the same.
    last_nanos: Arc<Mutex<i128>>,
}

impl EventBroadcaster {
    /// One that speaks for the kubelet of the node `node_name`, and sends no more than 50 events a second after a burst of
    /// 100.
    pub fn new(sink: impl EventSink, node_name: impl Into<String>) -> Self {
        let (sender, queue) = mpsc::channel(QUEUED);
        let source = EventSource {
            component: Some("kubelet".to_owned()),
            host: Some(node_name.into()),
        };
        let handle = EventRecorderHandle {
            queue: sender,
            source: Arc::new(source),
            clock: Clock::system(),
            last_nanos: Arc::default(),
        };
        Self {
            sink: Box::new(sink),
            handle,
            queue,
            rate: (50, 100),
            jitter: Jitter::default(),
        }
    }

    /// At most so many events a second after so many at once (`eventRecordQPS`, `eventBurst`); 0 a second is no limit.
    #[must_use]
    pub fn with_rate(mut self, qps: u32, burst: u32) -> Self {
        self.rate = (qps, burst);
        self
    }

    /// The clock that events get their times from. To be set before [`handle`](Self::handle) is called.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.handle.clock = clock;
        self
    }

    /// Where the randomness of the first retry comes from.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Who records events. It works, too, before the broadcaster runs: they wait.
    pub fn handle(&self) -> EventRecorderHandle {
        self.handle.clone()
    }

    /// Sends events until `shutdown`, or until nobody can record any more. What waits then is dropped: an event is worth no
    /// delay of the agent's end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops what is being sent and what waits.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self {
            sink,
            handle,
            mut queue,
            rate,
            jitter,
        } = self;
        let clock = handle.clock;
        // Only the recorders outside keep the queue open.
        drop(handle);
        let sending = async {
            let mut correlator = EventCorrelator::default();
            let limit = RateLimit::new(rate.0, rate.1);
            while let Some(event) = queue.recv().await {
                let correlated = correlator.correlate(*event, clock.now(), Instant::now());
                if correlated != Correlated::Drop {
                    send(&*sink, &correlated, &limit, &jitter).await;
                }
            }
        };
        shutdown.run_until_cancelled(sending).await;
    }
}

/// One event, until it is taken or given up (`recordToSink`).
async fn send(sink: &dyn EventSink, correlated: &Correlated, limit: &RateLimit, jitter: &Jitter) {
    let (event, patch) = match correlated {
        Correlated::Create(event) => (event, None),
        Correlated::Patch(event, patch) => (event, Some(patch)),
        Correlated::Drop => return,
    };
    let (pod, reason) = (event.involved_object.name.as_deref(), event.reason.as_deref());
    for tried in 1..=TRIES {
        let mut outcome = match patch {
            Some(patch) => attempt(limit, sink.patch(event, patch)).await,
            None => attempt(limit, sink.create(event)).await,
        };
        if patch.is_some() && matches!(outcome, Err(EventSinkError::NotFound)) {
            outcome = attempt(limit, sink.create(event)).await;
        }
        match outcome {
            Ok(()) => return,
            Err(error @ (EventSinkError::NotFound | EventSinkError::Refused(_))) => {
                tracing::error!(pod, reason, %error, "Server rejected event (will not retry!)");
                return;
            }
            Err(error) if tried == TRIES => {
                tracing::error!(pod, reason, %error, "Unable to write event (retry limit exceeded!)");
            }
            Err(error) => {
                tracing::debug!(pod, reason, %error, "Unable to write event (may retry after sleeping)");
                // Many agents lose one server at once.
                let part = if tried == 1 {
                    jitter.apply(RETRY_AFTER, 1.0) - RETRY_AFTER
                } else {
                    RETRY_AFTER
                };
                tokio::time::sleep(part).await;
            }
        }
    }
}

/// One request, when the rate allows it, within the time that it may take.
async fn attempt(
    limit: &RateLimit,
    request: impl Future<Output = Result<(), EventSinkError>>,
) -> Result<(), EventSinkError> {
    limit.take().await;
    tokio::time::timeout(SINK_TIMEOUT, request)
        .await
        .unwrap_or_else(|elapsed| Err(EventSinkError::NotReached(elapsed.into())))
}

impl EventRecorder for EventRecorderHandle {
    fn record(&self, event: Event<'_>) {
        let key = event.pod.key();
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(key.name.to_string()),
            namespace: Some(key.namespace.to_string()),
            uid: event.pod.metadata.uid.clone(),
            resource_version: event.pod.metadata.resource_version.clone(),
            field_path: event.field_path,
        };
        self.queue(object, event.event_type, event.reason, event.message);
    }
}

/// Events about the node are kept in the namespace `default`, as the node is in none.
impl NodeEventRecorder for EventRecorderHandle {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: self.source.host.clone(),
            ..ObjectReference::default()
        };
        self.queue(object, event_type, reason, message);
    }
}

impl EventRecorderHandle {
    fn queue(&self, object: ObjectReference, event_type: EventType, reason: &str, message: String) {
        let event = Box::new(self.api_event(object, event_type, reason, message));
        if let Err(full) = self.queue.try_send(event) {
            let object = full.into_inner().involved_object;
            tracing::error!(
                kind = object.kind,
                name = object.name,
                "Unable to record event: too many queued events, dropped event"
            );
        }
    }

    /// `makeEvent`
    fn api_event(
        &self,
        object: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: String,
    ) -> ApiEvent {
        let now = self.clock.now();
        let nanos = {
            let mut last = self.last_nanos.lock();
            *last = now.as_nanosecond().max(*last + 1);
            *last
        };
        let time = api_time(now);
        let namespace = object.namespace.as_deref().unwrap_or("default").to_owned();
        ApiEvent {
            metadata: ObjectMeta {
                name: Some(event_name(object.name.as_deref().unwrap_or_default(), nanos)),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: object,
            count: Some(1),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            type_: Some(event_type.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            reporting_component: self.source.component.clone(),
            reporting_instance: self.source.host.clone(),
            source: Some((*self.source).clone()),
            ..ApiEvent::default()
        }
    }
}

/// `GenerateEventName`; where the pod's name leaves no room, it is cut (the kubelet takes a UUID then).
fn event_name(pod: &str, nanos: i128) -> String {
    let nanos = format!("{nanos:x}");
    let room = MAX_NAME - nanos.len() - 1;
    let end = pod
        .char_indices()
        .map(|(start, _)| start)
        .chain([pod.len()])
        .filter(|end| *end <= room)
        .max();
    let pod = pod[..end.unwrap_or_default()].trim_end_matches(['-', '.']);
    format!("{pod}.{nanos}")
}
