//! The metrics bear the kubelet's names.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::fake::{FakeRuntime, Hints, Running};
use kubelet_core::Clock;
use kubelet_core::runtime::{ContainerState, SandboxState};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

/// The last value of each gauge and counter, and all of each histogram.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Metric(Recorded, String);

impl Metric {
    fn new(recorded: &Recorded, key: &Key) -> Arc<Self> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels: Vec<String> = labels.collect();
        Arc::new(Self(
            recorded.clone(),
            format!("{}{{{}}}", key.name(), labels.join(",")),
        ))
    }

    fn last(&self, value: f64) {
        self.0.0.lock().insert(self.1.clone(), vec![value]);
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.last(value as f64);
    }
    fn absolute(&self, value: u64) {
        self.last(value as f64);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.last(value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        let mut recorded = self.0.0.lock();
        recorded.entry(self.1.clone()).or_default().push(value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Metric::new(self, key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Metric::new(self, key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Metric::new(self, key))
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_of_a_few_lists() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let runtime = FakeRuntime::default();
    runtime.slow_lists(Duration::from_millis(250));
    runtime.run(
        "a",
        &[("c", ContainerState::Running), ("d", ContainerState::Exited)],
    );
    runtime.set(
        "b",
        Some(SandboxState::NotReady),
        &[("e", ContainerState::Created)],
    );
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let pleg = Running::with(runtime.clone(), |pleg| pleg.with_clock(clock));
    pleg.all_seen(["a", "b"]).await;
    let value = |name: &str| recorded.0.lock().get(name).cloned().unwrap_or_default();
    assert_eq!(value("kubelet_running_pods{}"), [1.0]);
    let containers = |state: &str| value(&format!("kubelet_running_containers{{container_state={state}}}"));
    assert_eq!(containers("running"), [1.0]);
    assert_eq!(containers("exited"), [1.0]);
    assert_eq!(containers("created"), [1.0]);
    assert_eq!(containers("unknown"), [0.0]);
    runtime.set("b", None, &[("e", ContainerState::Running)]);
    runtime.remove("a");
    pleg.relisted().await;
    assert_eq!(value("kubelet_running_pods{}"), [0.0]);
    assert_eq!(containers("running"), [1.0]);
    assert_eq!(containers("exited"), [0.0]);
    assert_eq!(containers("created"), [0.0]);
    pleg.handle.request_relist(&"b".into());
    runtime.called("pod b", 1).await;
    runtime.called("pods", 4).await;
    assert_eq!(value("kubelet_pleg_relist_duration_seconds{}"), [0.25; 3]);
    assert_eq!(value("kubelet_pleg_relist_interval_seconds{}"), [1.25; 3]);
    assert_eq!(value("kubelet_pleg_pod_relist_duration_seconds{}"), [0.0]);
    assert_eq!(value("kubelet_pleg_last_seen_seconds{}"), [1_767_225_602.0]);
    assert_eq!(value("kubelet_pleg_discard_events{}"), [0.0]);
}

#[tokio::test(start_paused = true)]
async fn metrics_of_hints() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let value = |name: &str| {
        let name = format!("kubelet_evented_pleg_{name}{{}}");
        recorded.0.lock().get(&name).cloned().unwrap_or_default()
    };
    let runtime = FakeRuntime::default();
    runtime.hints(Hints::Refused);
    let mut pleg = Running::evented(runtime.clone(), |pleg| pleg);
    runtime.called("hints", 1).await;
    pleg.relisted().await;
    assert_eq!(value("connection_success_count"), [0.0]);
    assert_eq!(value("connection_error_count"), [1.0]);
    runtime.hints(Hints::Open);
    runtime.called("hints", 2).await;
    pleg.relisted().await;
    assert_eq!(value("connection_success_count"), [1.0]);
    assert_eq!(value("connection_latency_seconds"), [0.0]);
    assert_eq!(value("missed_changes_total"), [0.0]);
    runtime.run("a", &[]);
    runtime.run("b", &[]);
    pleg.next().await;
    pleg.relisted().await;
    assert_eq!(value("missed_changes_total"), [2.0]);
}
