//! Sends events to an event sink.

mod correlator;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Event as ApiEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_core::{
    Clock, Event, EventRecorder, EventType, Jitter, NodeEventRecorder, PodExt, RateLimit, clock::api_time,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::correlator::{Correlated, EventCorrelator};

/// The capacity of the queue (`maxQueuedEvents`).
const QUEUED: usize = 1000;
/// The number of attempts per event (`maxTriesPerEvent`).
const TRIES: u32 = 12;
/// The wait between attempts (`defaultSleepDuration`); the first one is a random part of it.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The time limit of one call to the sink.
const SINK_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of an object's name (`DNS1123SubdomainMaxLength`).
const MAX_NAME: usize = 253;

/// The destination of events: an API server, or your own.
///
/// # Cancel safety
///
/// Any call may be dropped and made again.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Creates an event.
    async fn create(&self, event: &ApiEvent) -> Result<(), EventSinkError>;

    /// Updates an event that was created before, with a strategic merge patch: the event has occurred again.
    async fn patch(&self, event: &ApiEvent, patch: &Value) -> Result<(), EventSinkError>;
}

/// Why a sink did not accept an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventSinkError {
    /// Of an update: the event no longer exists; it is created again. Of a creation: its namespace does not exist.
    #[error("not found")]
    NotFound,
    /// The namespace of the event is being deleted, so no event can be created in it; a retry would fail, too.
    #[error("namespace is being deleted: {0}")]
    NamespaceTerminating(String),
    /// The sink rejects the event; a retry would fail, too.
    #[error("rejected: {0}")]
    Refused(String),
    /// The sink is not reachable; a retry may succeed.
    #[error("sink not reachable: {0}")]
    NotReached(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends the events of an agent to an [`EventSink`]. Repeated events are counted, similar events are combined, bursts
/// about one object are dropped, and a rate limit applies, as in client-go's `EventBroadcaster`.
///
/// [Recording](EventRecorderHandle) an event never blocks. Up to 1,000 events can be queued; further events are dropped
/// and logged. Each event is tried 12 times, about every 10 s.
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
/// /// Sends one line for each event.
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
    jitter: Jitter,
}

/// Records events for an [`EventBroadcaster`]. Clones share the queue.
#[derive(Clone, Debug)]
pub struct EventRecorderHandle {
    /// Boxed: a queue keeps its capacity after a burst.
    queue: mpsc::Sender<Box<ApiEvent>>,
    source: Arc<EventSource>,
    clock: Clock,
    /// Event names contain a time; this makes them unique.
    last_nanos: Arc<Mutex<i128>>,
    /// Events per second, and at once.
    rate: Arc<Mutex<(u32, u32)>>,
}

impl EventBroadcaster {
    /// A broadcaster for the kubelet of the node `node_name`, with a limit of 50 events per second after a burst of
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
            rate: Arc::new(Mutex::new((50, 100))),
        };
        Self {
            sink: Box::new(sink),
            handle,
            queue,
            jitter: Jitter::default(),
        }
    }

    /// Sets the rate limit: `qps` events per second after `burst` at once (`eventRecordQPS`, `eventBurst`). 0 per
    /// second is no limit.
    #[must_use]
    pub fn with_rate(self, qps: u32, burst: u32) -> Self {
        self.handle.set_rate(qps, burst);
        self
    }

    /// The clock for the times of events. Set it before you call [`handle`](Self::handle).
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.handle.clock = clock;
        self
    }

    /// The source of randomness for the first retry.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The recorder. It also works before the broadcaster runs: events are queued.
    pub fn handle(&self) -> EventRecorderHandle {
        self.handle.clone()
    }

    /// Sends events until `shutdown`, or until all recorders are dropped. Queued events are dropped then, so that they
    /// do not delay the end of the agent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the current and the queued events.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self {
            sink,
            handle,
            mut queue,
            jitter,
        } = self;
        let (clock, wanted) = (handle.clock, handle.rate.clone());
        // Only the recorders keep the queue open.
        drop(handle);
        let sending = async {
            let mut correlator = EventCorrelator::default();
            let mut rate = *wanted.lock();
            let mut limit = RateLimit::new(rate.0, rate.1.max(1));
            while let Some(event) = queue.recv().await {
                let now = *wanted.lock();
                if rate != now {
                    rate = now;
                    limit = RateLimit::new(rate.0, rate.1.max(1));
                }
                let correlated = correlator.correlate(*event, clock.now(), Instant::now());
                if correlated != Correlated::Drop {
                    send(&*sink, &correlated, &limit, &jitter).await;
                }
            }
        };
        shutdown.run_until_cancelled(sending).await;
    }
}

/// Sends one event until it is accepted or given up (`recordToSink`).
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
            // Ordinary while a namespace is being deleted: its pods end, and emit events.
            Err(error @ (EventSinkError::NotFound | EventSinkError::NamespaceTerminating(_))) => {
                tracing::debug!(pod, reason, %error, "Event dropped, its namespace no longer exists");
                return;
            }
            Err(error @ EventSinkError::Refused(_)) => {
                tracing::error!(pod, reason, %error, "Server rejected event (will not retry!)");
                return;
            }
            Err(error) if tried == TRIES => {
                tracing::error!(pod, reason, %error, "Unable to write event (retry limit exceeded!)");
            }
            Err(error) => {
                tracing::debug!(pod, reason, %error, "Unable to write event (may retry after sleeping)");
                // Many agents may lose one server at the same time.
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

/// One request, subject to the rate limit and the time limit.
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
        self.record_annotated(event, BTreeMap::new());
    }

    fn record_annotated(&self, event: Event<'_>, annotations: BTreeMap<String, String>) {
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
        self.queue(object, annotations, event.event_type, event.reason, event.message);
    }
}

/// Events about the node are in the namespace `default`, since a node has no namespace.
impl NodeEventRecorder for EventRecorderHandle {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: self.source.host.clone(),
            ..ObjectReference::default()
        };
        self.queue(object, BTreeMap::new(), event_type, reason, message);
    }
}

impl EventRecorderHandle {
    /// Changes the rate limit, as [`EventBroadcaster::with_rate`] sets it. It applies from the next event on, with a full
    /// burst.
    pub fn set_rate(&self, qps: u32, burst: u32) {
        *self.rate.lock() = (qps, burst);
    }

    fn queue(
        &self,
        object: ObjectReference,
        annotations: BTreeMap<String, String>,
        event_type: EventType,
        reason: &str,
        message: String,
    ) {
        let mut event = Box::new(self.api_event(object, event_type, reason, message));
        event.metadata.annotations = Some(annotations).filter(|annotations| !annotations.is_empty());
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

/// `GenerateEventName`; a pod's name that is too long is truncated (the kubelet uses a UUID then).
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
