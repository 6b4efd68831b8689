//! Collects log lines.

use std::fmt;
use std::sync::Arc;

use kubelet_testing::{Subscribed, subscribe};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The level and message of each log line of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    /// Collects log lines until the guard is dropped.
    pub(crate) fn collect(&self) -> Subscribed {
        subscribe(self.clone())
    }

    /// The lines so far with `words` in their messages.
    pub(crate) fn about(&self, words: &str) -> Vec<(Level, String)> {
        let lines = self.0.lock();
        lines
            .iter()
            .filter(|(_, message)| message.contains(words))
            .cloned()
            .collect()
    }

    /// The warnings and errors so far.
    pub(crate) fn alarms(&self) -> Vec<(Level, String)> {
        let lines = self.0.lock();
        lines
            .iter()
            .filter(|(level, _)| *level <= Level::WARN)
            .cloned()
            .collect()
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message::default();
        event.record(&mut message);
        self.0.lock().push((*event.metadata().level(), message.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
