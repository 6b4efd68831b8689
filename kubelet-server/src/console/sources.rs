//! What the console shows, and where it comes from.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{
    Clock, Event, EventRecorder, EventType, KubeletHandle, NodeEventRecorder, PodExt as _, PodUid,
};
use parking_lot::Mutex;

/// How many events are kept in all, and of one pod.
const EVENTS: usize = 2000;
const EVENTS_OF_ONE: usize = 40;

/// Explains what a pod waits for.
pub trait Explain: Send + Sync {
    /// One line for each thing that the pod has passed or waits for, in order.
    fn explain(&self, pod: &PodUid) -> Vec<String>;
}

impl Explain for KubeletHandle {
    fn explain(&self, pod: &PodUid) -> Vec<String> {
        KubeletHandle::explain(self, pod)
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

/// The totals of durations that the agent measures, for the plots.
pub trait Durations: Send + Sync {
    /// How often the metric was measured, and the sum in seconds; `None` if it is not known.
    fn totals(&self, metric: &str) -> Option<(u64, f64)>;
}

impl Durations for crate::prometheus::Metrics {
    fn totals(&self, metric: &str) -> Option<(u64, f64)> {
        self.histogram_totals(metric)
    }
}

/// An event as the console shows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ShownEvent {
    /// The pod; `None` for the node.
    pub pod: Option<PodUid>,
    /// The container that it is about, if it is about one.
    pub container: Option<String>,
    /// Whether it reports a problem.
    pub warning: bool,
    /// The reason, one word.
    pub reason: String,
    /// The message.
    pub message: String,
    /// When it came last.
    pub at: Timestamp,
    /// How often it came in a row.
    pub count: u32,
}

/// Keeps the newest events in memory, and passes all of them on: a recorder between the agent and its own recorder. Clones share
/// the events.
///
/// It keeps 2,000 events, and 40 of one pod.
#[derive(Clone)]
pub struct RecentEvents {
    events: Arc<Mutex<VecDeque<ShownEvent>>>,
    pods: Option<Arc<dyn EventRecorder>>,
    node: Option<Arc<dyn NodeEventRecorder>>,
    clock: Clock,
}

impl RecentEvents {
    /// Keeps events by this clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            events: Arc::default(),
            pods: None,
            node: None,
            clock,
        }
    }

    /// Passes on the events of pods.
    #[must_use]
    pub fn pods_to(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.pods = Some(recorder);
        self
    }

    /// Passes on the events of the node.
    #[must_use]
    pub fn node_to(mut self, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        self.node = Some(recorder);
        self
    }

    /// The events of a pod, or of the node, oldest first.
    pub fn of(&self, pod: Option<&PodUid>) -> Vec<ShownEvent> {
        let events = self.events.lock();
        events
            .iter()
            .filter(|event| event.pod.as_ref() == pod)
            .cloned()
            .collect()
    }

    fn keep(&self, event: ShownEvent) {
        let mut events = self.events.lock();
        let is_same = |known: &ShownEvent| {
            (&known.pod, &known.container, &known.reason, &known.message)
                == (&event.pod, &event.container, &event.reason, &event.message)
        };
        // Only the last one of the pod: an older one has its place in the order.
        let last = events.iter().rposition(|known| known.pod == event.pod);
        if let Some(known) = last
            .and_then(|last| events.get_mut(last))
            .filter(|known| is_same(known))
        {
            known.at = event.at;
            known.count += 1;
            return;
        }
        let of_pod = events.iter().filter(|known| known.pod == event.pod).count();
        let too_many = match of_pod >= EVENTS_OF_ONE {
            true => events.iter().position(|known| known.pod == event.pod),
            false => (events.len() >= EVENTS).then_some(0),
        };
        if let Some(oldest) = too_many {
            events.remove(oldest);
        }
        events.push_back(event);
    }
}

impl EventRecorder for RecentEvents {
    fn record(&self, event: Event<'_>) {
        self.keep(self.shown(&event));
        if let Some(next) = &self.pods {
            next.record(event);
        }
    }

    fn record_annotated(&self, event: Event<'_>, annotations: std::collections::BTreeMap<String, String>) {
        self.keep(self.shown(&event));
        if let Some(next) = &self.pods {
            next.record_annotated(event, annotations);
        }
    }
}

impl NodeEventRecorder for RecentEvents {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        self.keep(ShownEvent {
            pod: None,
            container: None,
            warning: event_type == EventType::Warning,
            reason: reason.to_owned(),
            message: message.clone(),
            at: self.clock.now(),
            count: 1,
        });
        if let Some(next) = &self.node {
            next.record_node(event_type, reason, message);
        }
    }
}

impl RecentEvents {
    fn shown(&self, event: &Event<'_>) -> ShownEvent {
        let part = event.field_path.as_deref().unwrap_or_default();
        ShownEvent {
            pod: Some(Pod::uid(event.pod)),
            container: part
                .split_once('{')
                .map(|(_, name)| name.trim_end_matches('}').to_owned()),
            warning: event.event_type == EventType::Warning,
            reason: event.reason.to_owned(),
            message: event.message.clone(),
            at: self.clock.now(),
            count: 1,
        }
    }
}

impl std::fmt::Debug for RecentEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecentEvents")
            .field("events", &self.events.lock().len())
            .finish_non_exhaustive()
    }
}
