//! Collects what this thread logs, to test the levels.

use std::fmt::{Debug, Write as _};
use std::sync::Arc;

use kubelet_testing::{Subscribed, subscribe};
use parking_lot::Mutex;
use tracing::field::Field;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::Registry;

/// The log lines so far: level and message.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<String>>>);

impl Logged {
    /// Collects until the guard is dropped.
    pub(crate) fn start() -> (Self, Subscribed) {
        let logged = Self::default();
        let subscriber = Registry::default().with(logged.clone());
        (logged, subscribe(subscriber))
    }

    /// The lines of this crate that contain `part`.
    pub(crate) fn lines(&self, part: &str) -> Vec<String> {
        let lines = self.0.lock();
        lines.iter().filter(|line| line.contains(part)).cloned().collect()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Logged {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if !event.metadata().target().starts_with("kubelet_status") {
            return;
        }
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "message" {
                write!(line, " {value:?}").unwrap();
            }
        });
        self.0.lock().push(line);
    }
}
