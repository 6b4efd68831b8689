//! An agent's work for a pod is in a span that names the pod, and its work for a container in one that names the
//! container.
//!
//! A program of its own: which spans are enabled is kept for all threads of a process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use kubelet_testing::{Simulation, Workload};
use parking_lot::Mutex;
use tracing::field::Field;
use tracing::span::{Attributes, Id};
use tracing::subscriber;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// For each span its ancestors and itself: names, and names of fields.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<BTreeSet<String>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let around = span
            .parent()
            .map(|parent| parent.extensions().get::<String>().cloned().unwrap());
        let mut path = around.map(|around| around + " > ").unwrap_or_default();
        path += span.name();
        attributes.record(&mut |field: &Field, value: &dyn Debug| match field.name() {
            // These few are all different.
            "operation" => write!(path, " {value:?}").unwrap(),
            name => {
                assert_ne!(format!("{value:?}").trim_matches('"'), "", "{name}");
                write!(path, " {name}").unwrap();
            }
        });
        self.0.lock().insert(path.clone());
        span.extensions_mut().insert(path);
    }
}

#[test]
fn what_is_done_for_a_pod_is_in_its_span_and_for_a_container_in_that_ones() {
    let spans = Spans::default();
    let subscriber = Registry::default().with(spans.clone());
    let lived = subscriber::with_default(subscriber, || {
        let simulation = Simulation::seed(1).node("node-1");
        simulation
            .workload(Workload::churn(3))
            .run(Duration::from_secs(300))
    });
    lived.unwrap_or_else(|failure| panic!("{failure}"));

    let (pod, container) = ("pod pod uid", "pod pod uid > container container");
    let spans = spans.0.lock();
    for (around, operation) in [
        (pod, "run_podsandbox"),
        (container, "image_status"),
        (container, "create_container"),
        (container, "start_container"),
        (container, "stop_container"),
    ] {
        let end = format!("runtime {operation:?}");
        let found: Vec<_> = spans.iter().filter(|path| path.ends_with(&end)).collect();
        assert_eq!(found, [&format!("{around} > {end}")], "{spans:#?}");
    }
    let end = r#"runtime "stop_podsandbox""#;
    assert!(spans.contains(&format!("{pod} > {end}")), "{spans:#?}");
}
