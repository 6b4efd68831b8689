//! The events of an agent: passed on to a recorder, and to whoever watches the handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::{
    Event, EventRecorder, EventType, LogEvents, NodeEventRecorder, PodExt as _, PodKey, PodUid,
};
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
        let (pods, node) = recorders.unwrap_or_else(|| (Arc::new(LogEvents), Arc::new(LogEvents)));
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
