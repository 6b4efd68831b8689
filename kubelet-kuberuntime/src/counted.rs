//! Reads metrics in tests.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

/// By name and label values: the values of counters and gauges, and the number of samples of histograms.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counted {
    /// Runs a test in virtual time, and returns its metrics with this prefix, without the prefix.
    pub(crate) fn of(prefix: &str, test: impl Future<Output = ()>) -> Vec<(String, u64)> {
        let counted = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        metrics::with_local_recorder(&counted, || runtime.block_on(test));
        let all = std::mem::take(&mut *counted.0.lock());
        all.into_iter()
            .filter_map(|(metric, value)| Some((metric.strip_prefix(prefix)?.to_owned(), value)))
            .collect()
    }

    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels = key.labels().map(|label| label.value());
        let name: Vec<&str> = std::iter::once(key.name()).chain(labels).collect();
        Arc::new(Metric(self.clone(), name.join(" ")))
    }
}

struct Metric(Counted, String);

impl Metric {
    fn change(&self, change: impl FnOnce(&mut u64)) {
        change(self.0.0.lock().entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Metric {
    fn increment(&self, count: u64) {
        self.change(|value| *value += count);
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Metric {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, to: f64) {
        self.change(|value| *value = to as u64);
    }
}

impl HistogramFn for Metric {
    fn record(&self, _: f64) {
        self.change(|value| *value += 1);
    }
}

impl Recorder for Counted {
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
