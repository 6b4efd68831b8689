//! What was measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

/// The sum of each counter, the last value of each gauge, all of each histogram, by `name{label=value,…}`.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl Recorded {
    pub(crate) fn all(&self, metric: &str) -> Vec<f64> {
        self.0.lock().get(metric).cloned().unwrap_or_default()
    }

    /// The value of a gauge or counter; 0 where nothing was told.
    pub(crate) fn value(&self, metric: &str) -> f64 {
        self.all(metric).first().copied().unwrap_or_default()
    }

    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels: Vec<String> = labels.collect();
        Arc::new(Metric(
            self.clone(),
            format!("{}{{{}}}", key.name(), labels.join(",")),
        ))
    }
}

struct Metric(Recorded, String);

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        let mut recorded = self.0.0.lock();
        recorded.entry(self.1.clone()).or_insert_with(|| vec![0.0])[0] += value as f64;
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Metric {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.0.0.lock().insert(self.1.clone(), vec![value]);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.0.0.lock().entry(self.1.clone()).or_default().push(value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}
