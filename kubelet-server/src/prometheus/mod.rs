//! All metrics of the node, in the text format of Prometheus and in OpenMetrics.
//!
//! The crates of this project emit their metrics through the [`metrics`] facade. [`Metrics`] records them and writes them by
//! the kubelet's names, with the kubelet's types, help texts and buckets. It has no task of its own and keeps a number for
//! each series, not the values; so its memory does not grow with time.
//!
//! ```
//! use kubelet_server::prometheus::{Format, Metrics, Selection};
//!
//! let metrics = Metrics::new();
//! // A program does this once: metrics::set_global_recorder(metrics.recorder())
//! metrics::with_local_recorder(&metrics.recorder(), || {
//!     metrics::counter!("kubelet_started_containers_total", "container_type" => "container").increment(1);
//! });
//! let mut text = String::new();
//! metrics.render(Selection::Main, Format::Text, &mut text);
//! assert!(text.contains("kubelet_started_containers_total{container_type=\"container\"} 1\n"));
//! ```
//!
//! Metrics of an embedder are written too: with the help text of `metrics::describe_counter!` and its siblings, and
//! Prometheus' default buckets. A gauge with labels that is set to NaN is no longer shown: the facade cannot remove a series.
//!
//! The kubelet has more: those of its Go libraries (`go_*`, `rest_client_*`, `workqueue_*`, `apiserver_*` of features that a
//! node does not use), and those of managers that these crates do not have. A metric that nobody can emit is not shown.

mod buckets;
mod definition;
mod negotiate;
mod process;
mod registry;
mod table;
mod text;

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt as _;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use self::definition::{Kind, Page};
pub use self::negotiate::negotiate;
use self::registry::Registry;
use self::text::Writer;
pub use crate::routes::metrics::MetricsSelection as Selection;

/// How to write metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Records metrics and writes them. Clones share the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics in which all the kubelet's metrics without labels are 0.
    pub fn new() -> Self {
        Self {
            registry: Arc::new(Registry::new()),
        }
    }

    /// The recorder for `metrics::set_global_recorder`, which a program calls once.
    pub fn recorder(&self) -> impl Recorder + Send + Sync + 'static {
        self.clone()
    }

    /// Sets `kubernetes_build_info`. The kubelet's labels are `build_date`, `compiler`, `git_commit`, `git_tree_state`,
    /// `git_version`, `go_version`, `major`, `minor` and `platform`.
    pub fn set_build_info(&self, labels: &[(&'static str, &str)]) {
        self.set_gauge("kubernetes_build_info", labels, 1.0);
    }

    /// Sets `kubernetes_feature_enabled` of one feature gate. The stage is `ALPHA`, `BETA`, `DEPRECATED` or empty.
    pub fn set_feature(&self, name: &str, stage: &str, enabled: bool) {
        let value = if enabled { 1.0 } else { 0.0 };
        self.set_gauge(
            "kubernetes_feature_enabled",
            &[("name", name), ("stage", stage)],
            value,
        );
    }

    /// Counts one health check: `kubernetes_healthcheck` and `kubernetes_healthchecks_total`. The endpoint is `healthz` and
    /// the like.
    pub fn observe_health_check(&self, name: &str, endpoint: &str, healthy: bool) {
        let value = if healthy { 1.0 } else { 0.0 };
        self.set_gauge(
            "kubernetes_healthcheck",
            &[("name", name), ("type", endpoint)],
            value,
        );
        let labels = [
            ("name", name),
            ("status", if healthy { "success" } else { "error" }),
            ("type", endpoint),
        ];
        self.registry
            .counter(&key("kubernetes_healthchecks_total", &labels))
            .increment(1);
    }

    fn set_gauge(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64) {
        self.registry.gauge(&key(name, labels)).set(value);
    }

    /// How often all series of a histogram were observed, and the sum; `None` if there is no such histogram.
    pub fn histogram_totals(&self, name: &str) -> Option<(u64, f64)> {
        self.registry.histogram_totals(name)
    }

    /// Removes the metrics of probes of the pods that `keep` refuses.
    ///
    /// The crates cannot remove a metric through the facade. So whoever knows the pods calls this now and then: before
    /// [`Selection::Probes`] is rendered, for example. `keep` gets namespace and name, and the UID where the metric has it.
    pub fn retain_pods(&self, keep: impl FnMut(&str, &str, Option<&str>) -> bool) {
        self.registry.retain_pods(keep);
    }

    /// Appends the selected metrics to `out`, sorted by name and labels.
    pub fn render(&self, selection: Selection, format: Format, out: &mut String) {
        let page = match selection {
            Selection::Main => Page::Main,
            Selection::Probes => Page::Probes,
            Selection::Slis => Page::Slis,
        };
        let mut writer = Writer::new(format, out);
        let mut process = Some(selection);
        self.registry.visit(page, |name, family| {
            if name > "process_"
                && let Some(selection) = process.take()
            {
                process::write(selection, &mut writer);
            }
            family.write(name, &mut writer);
        });
        if let Some(selection) = process {
            process::write(selection, &mut writer);
        }
        writer.end();
    }
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels = labels
        .iter()
        .map(|&(name, value)| metrics::Label::new(name, value.to_owned()));
    Key::from_parts(name, labels.collect::<Vec<_>>())
}

impl Recorder for Metrics {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.registry.describe(name.as_str(), Kind::Counter, help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.registry.describe(name.as_str(), Kind::Gauge, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.registry.describe(name.as_str(), Kind::Histogram, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.registry.counter(key)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.registry.gauge(key)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.registry.histogram(key)
    }
}

impl crate::MetricsSource for Metrics {
    fn metrics(&self, selection: Selection, headers: &http::HeaderMap) -> (http::HeaderValue, Vec<u8>) {
        let (format, mut text) = (negotiate(headers), String::new());
        self.render(selection, format, &mut text);
        (
            http::HeaderValue::from_static(format.content_type()),
            text.into_bytes(),
        )
    }

    fn retain_pods(&self, pods: &[Arc<Pod>]) {
        let key = |pod: &Arc<Pod>| {
            let key = pod.key();
            (key.namespace.to_string(), key.name.to_string(), pod.uid())
        };
        let known: HashSet<_> = pods.iter().map(key).collect();
        let names: HashSet<_> = known
            .iter()
            .map(|(namespace, name, _)| (&**namespace, &**name))
            .collect();
        Metrics::retain_pods(self, |namespace, name, uid| match uid {
            Some(uid) => known.contains(&(namespace.to_owned(), name.to_owned(), uid.into())),
            None => names.contains(&(namespace, name)),
        });
    }

    fn observe_health_check(&self, name: &str, healthy: bool) {
        Metrics::observe_health_check(self, name, "healthz", healthy);
    }
}

#[cfg(test)]
mod tests;
