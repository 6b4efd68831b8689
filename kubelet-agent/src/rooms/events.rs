//! The events of an agent: passed on to a recorder, and to whoever watches the handle.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kubelet_core::{
    Event, EventRecorder, EventType, LogEvents, NodeEventRecorder, PodExt as _, PodKey, PodUid,
};
use parking_lot::Mutex;
use tokio::sync::broadcast;

/// How many events a slow watcher may be behind before it loses the oldest.
const BEHIND: usize = 256;

/// An event that the agent recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentEvent {
    /// The pod; `None` for an event about the node.
    pub pod: Option<(PodKey, PodUid)>,
    /// Normal or warning.
    pub event_type: EventType,
    /// The reason, e.g. `BackOff`.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// Who records the events about pods, and about the node; `None`: the log.
pub(crate) type Recorders = Option<(Arc<dyn EventRecorder>, Arc<dyn NodeEventRecorder>)>;

/// The events of a failure that the log has in a line of its own, which says more: of the worker of a pod, of a volume, of a probe, and of
/// the collection of images.
const SAID_ELSEWHERE: [&str; 9] = [
    "Failed",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "FailedMapVolume",
    "FailedMount",
    "FailedPostStartHook",
    "FreeDiskSpaceFailed",
    "ImageGCFailed",
    "Unhealthy",
];

/// Of how many events it is known that they were logged.
const LOGGED: usize = 4096;

/// Logs events, where there is no cluster to which they go. An event that is the same as the one before, of the same part of a pod and
/// with the same reason, is logged at the level DEBUG, and so is one of which the log has another line.
#[derive(Default)]
pub(crate) struct EventLog {
    /// By UID, part and reason: the message.
    logged: Mutex<HashMap<(PodUid, String, String), String>>,
}

impl EventRecorder for EventLog {
    fn record(&self, event: Event<'_>) {
        let part = event.field_path.clone().unwrap_or_default();
        let key = (event.pod.uid(), part, event.reason.to_owned());
        let is_failure = event.event_type == EventType::Warning && SAID_ELSEWHERE.contains(&event.reason);
        let is_known = {
            let mut logged = self.logged.lock();
            if logged.len() >= LOGGED {
                logged.clear();
            }
            logged.insert(key, event.message.clone()).as_ref() == Some(&event.message)
        };
        let is_repeated = is_known && event.event_type == EventType::Warning;
        if !(is_failure || is_repeated) {
            return LogEvents.record(event);
        }
        let (pod, uid, reason) = (event.pod.key(), event.pod.uid_str(), event.reason);
        tracing::debug!(%pod, uid, reason, "{}", event.message);
    }
}

impl NodeEventRecorder for EventLog {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        match SAID_ELSEWHERE.contains(&reason) {
            true => tracing::debug!(reason, "{message}"),
            false => LogEvents.record_node(event_type, reason, message),
        }
    }
}

/// Passes events on.
#[derive(Clone)]
pub(crate) struct EventFeed {
    pods: Arc<dyn EventRecorder>,
    node: Arc<dyn NodeEventRecorder>,
    watchers: broadcast::Sender<AgentEvent>,
}

impl EventFeed {
    /// Passes events on to these recorders; without them, to the log.
    pub(crate) fn new(recorders: Recorders) -> Self {
        let (pods, node) = recorders.unwrap_or_else(|| {
            let log = Arc::new(EventLog::default());
            (log.clone(), log)
        });
        Self {
            pods,
            node,
            watchers: broadcast::channel(BEHIND).0,
        }
    }

    pub(crate) fn watch(&self) -> broadcast::Receiver<AgentEvent> {
        self.watchers.subscribe()
    }

    /// Without watchers, an event is not copied.
    fn publish(&self, event: impl FnOnce() -> AgentEvent) {
        if self.watchers.receiver_count() > 0 {
            drop(self.watchers.send(event()));
        }
    }
}

fn about(event: &Event<'_>) -> AgentEvent {
    AgentEvent {
        pod: Some((event.pod.key(), event.pod.uid())),
        event_type: event.event_type,
        reason: event.reason.to_owned(),
        message: event.message.clone(),
    }
}

impl EventRecorder for EventFeed {
    fn record(&self, event: Event<'_>) {
        self.publish(|| about(&event));
        self.pods.record(event);
    }

    fn record_annotated(&self, event: Event<'_>, annotations: BTreeMap<String, String>) {
        self.publish(|| about(&event));
        self.pods.record_annotated(event, annotations);
    }
}

impl NodeEventRecorder for EventFeed {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        let of_node = || AgentEvent {
            pod: None,
            event_type,
            reason: reason.to_owned(),
            message: message.clone(),
        };
        self.publish(of_node);
        self.node.record_node(event_type, reason, message);
    }
}
