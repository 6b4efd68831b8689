//! [`Change`]: one write in the history, which watches send.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::at_revision;
use super::selection::Selection;
use crate::resource::Resource;

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventType {
    /// The object was created, or is now selected.
    Added,
    /// It changed.
    Modified,
    /// The object was deleted, or is no longer selected.
    Deleted,
}

impl EventType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

/// One write.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(super) key: String,
    pub(super) old: Option<Arc<Value>>,
    new: Option<Arc<Value>>,
    /// `old` as a watch shows it on deletion: with this change's revision.
    last: OnceLock<Arc<Value>>,
    /// The lines of a watch, shared by all watchers.
    lines: [OnceLock<Bytes>; 3],
}

impl Change {
    pub(super) fn new(revision: u64, key: String, old: Option<Arc<Value>>, new: Option<Arc<Value>>) -> Self {
        Change {
            revision,
            key,
            old,
            new,
            last: OnceLock::new(),
            lines: Default::default(),
        }
    }

    /// The object after the change; after a deletion its last state.
    pub(super) fn object(&self) -> &Arc<Value> {
        self.new.as_ref().unwrap_or_else(|| self.last())
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn new_object(&self) -> Option<&Arc<Value>> {
        self.new.as_ref()
    }

    /// The event for a watcher that sees only a selection; `None` for no event.
    pub(crate) fn event(&self, resource: &Resource, selection: &Selection) -> Option<EventType> {
        let matches = |object: &Option<Arc<Value>>| {
            object
                .as_ref()
                .is_some_and(|object| selection.matches(resource, object))
        };
        match (matches(&self.old), matches(&self.new)) {
            (false, false) => None,
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
        }
    }

    /// The object that an event shows.
    pub(crate) fn shown(&self, event: EventType) -> &Arc<Value> {
        match (event, &self.new) {
            (EventType::Added | EventType::Modified, Some(new)) => new,
            _ => self.last(),
        }
    }

    /// The line of a watch for an event, with its line end.
    pub(crate) fn line(&self, event: EventType) -> Bytes {
        self.lines[event as usize]
            .get_or_init(|| line(event.as_str(), self.shown(event)))
            .clone()
    }

    fn last(&self) -> &Arc<Value> {
        self.last.get_or_init(|| {
            let last = self.old.as_deref().cloned().unwrap_or_default();
            Arc::new(at_revision(last, self.revision))
        })
    }
}

/// A line of a watch: `{"type":…,"object":…}`.
pub(crate) fn line(event: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{event}\",\"object\":{object}}}\n"))
}
