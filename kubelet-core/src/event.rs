//! Events about pods and the node, and the traits of their recorders.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::PodExt;

/// Whether an event reports something usual or a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

impl EventType {
    /// The value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// An event about a pod. Reasons are the kubelet's (`pkg/kubelet/events`).
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The pod it is about.
    pub pod: &'a Pod,
    /// The part of the pod, e.g. `spec.containers{main}` or `spec.initContainers{setup}`.
    pub field_path: Option<String>,
    /// Usual or a problem.
    pub event_type: EventType,
    /// The reason in CamelCase, e.g. `Started`.
    pub reason: &'a str,
    /// A message for humans.
    pub message: String,
}

impl<'a> Event<'a> {
    /// An event about the pod as a whole.
    pub fn about(pod: &'a Pod, event_type: EventType, reason: &'a str, message: impl Into<String>) -> Self {
        Event {
            pod,
            field_path: None,
            event_type,
            reason,
            message: message.into(),
        }
    }
}

/// Records events (`record.EventRecorder`). Returns at once: an implementation that sends events over a network uses a
/// bounded queue and drops events rather than block.
pub trait EventRecorder: Send + Sync {
    /// Records one event.
    fn record(&self, event: Event<'_>);

    /// Records one event with annotations (`AnnotatedEventf`). The default leaves the annotations out.
    fn record_annotated(&self, event: Event<'_>, annotations: BTreeMap<String, String>) {
        let _ = annotations;
        self.record(event);
    }
}

/// Records events about the node: its disk, garbage collection, its start. Returns at once, like [`EventRecorder`].
pub trait NodeEventRecorder: Send + Sync {
    /// Records one event. Reasons are the kubelet's (`pkg/kubelet/events`).
    fn record_node(&self, event_type: EventType, reason: &str, message: String);
}

/// Logs events with `tracing` and sends them nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEvents;

impl EventRecorder for LogEvents {
    fn record(&self, event: Event<'_>) {
        let pod = event.pod.key();
        let uid = event.pod.uid_str();
        let (reason, part, message) = (
            event.reason,
            event.field_path.as_deref().unwrap_or_default(),
            event.message,
        );
        match event.event_type {
            EventType::Normal => tracing::info!(%pod, uid, reason, part, "{message}"),
            EventType::Warning => tracing::warn!(%pod, uid, reason, part, "{message}"),
        }
    }
}

impl NodeEventRecorder for LogEvents {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        match event_type {
            EventType::Normal => tracing::info!(reason, "{message}"),
            EventType::Warning => tracing::warn!(reason, "{message}"),
        }
    }
}
