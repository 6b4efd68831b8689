//! The series of all metrics: one atomic number each, or a fixed number of them for a histogram.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, Label, SharedString};
use parking_lot::RwLock;

use super::buckets::DEFAULT;
use super::definition::{Kind, Page};
use super::table::DEFINITIONS;
use super::text::{Writer, escape_label};

/// Of one metric. More are dropped: labels that grow without end must not fill the memory of a node.
pub(super) const MAX_SERIES: usize = 10_000;

#[derive(Debug)]
pub(super) struct Registry {
    families: RwLock<BTreeMap<Box<str>, Family>>,
}

/// One metric with all its series.
#[derive(Debug)]
pub(super) struct Family {
    kind: Kind,
    help: SharedString,
    buckets: &'static [f64],
    page: Page,
    /// By labels as they are written, sorted and escaped: `a="1",b="2"`.
    series: BTreeMap<Box<str>, Series>,
    full: bool,
}

#[derive(Clone, Debug)]
enum Series {
    Counter(Arc<AtomicU64>),
    /// The bits of an `f64`.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Buckets>),
}

#[derive(Debug)]
struct Buckets {
    bounds: &'static [f64],
    /// One more than there are bounds: the last is for values beyond.
    counts: Box<[AtomicU64]>,
    /// The bits of an `f64`.
    sum: AtomicU64,
}

impl Registry {
    pub(super) fn new() -> Self {
        let families = DEFINITIONS.iter().map(|definition| {
            let mut family = Family {
                kind: definition.kind,
                help: SharedString::const_str(definition.help),
                buckets: definition.buckets,
                page: definition.page,
                series: BTreeMap::new(),
                full: false,
            };
            if definition.labels.is_empty() && !definition.when_used {
                family.series.insert("".into(), family.new_series());
            }
            (definition.name.into(), family)
        });
        Self {
            families: RwLock::new(families.collect()),
        }
    }

    pub(super) fn describe(&self, name: &str, kind: Kind, help: SharedString) {
        let name = sanitized(name, true);
        let mut families = self.families.write();
        let family = families
            .entry(name.into())
            .or_insert_with(|| Family::of_an_embedder(kind));
        if family.help.is_empty() {
            family.help = help;
        }
    }

    pub(super) fn counter(&self, key: &Key) -> Counter {
        match self.series(key, Kind::Counter) {
            Some(Series::Counter(value)) => Counter::from_arc(value),
            _ => Counter::noop(),
        }
    }

    pub(super) fn gauge(&self, key: &Key) -> Gauge {
        match self.series(key, Kind::Gauge) {
            Some(Series::Gauge(value)) => Gauge::from_arc(value),
            _ => Gauge::noop(),
        }
    }

    pub(super) fn histogram(&self, key: &Key) -> Histogram {
        match self.series(key, Kind::Histogram) {
            Some(Series::Histogram(value)) => Histogram::from_arc(value),
            _ => Histogram::noop(),
        }
    }

    /// The counts and the sums of all series of a histogram; `None` if there is no such histogram.
    pub(super) fn histogram_totals(&self, name: &str) -> Option<(u64, f64)> {
        let families = self.families.read();
        let family = families
            .get(name)
            .filter(|family| family.kind == Kind::Histogram)?;
        let mut totals = (0, 0.0);
        for series in family.series.values() {
            if let Series::Histogram(buckets) = series {
                totals.0 += buckets
                    .counts
                    .iter()
                    .map(|count| count.load(Ordering::Relaxed))
                    .sum::<u64>();
                totals.1 += f64::from_bits(buckets.sum.load(Ordering::Relaxed));
            }
        }
        Some(totals)
    }

    /// `None` if the metric is of another kind, or has too many series.
    fn series(&self, key: &Key, kind: Kind) -> Option<Series> {
        let name = sanitized(key.name(), true);
        let labels = written_labels(key);
        if let Some(family) = self.families.read().get(&*name)
            && let Some(series) = family.series.get(labels.as_str())
        {
            return (family.kind == kind).then(|| series.clone());
        }
        let mut families = self.families.write();
        let family = families
            .entry(name.as_ref().into())
            .or_insert_with(|| Family::of_an_embedder(kind));
        if family.kind != kind {
            return None;
        }
        if let Some(series) = family.series.get(labels.as_str()) {
            return Some(series.clone());
        }
        if family.series.len() >= MAX_SERIES {
            if !std::mem::replace(&mut family.full, true) {
                tracing::warn!(metric = %name, max = MAX_SERIES, "metric has too many series, dropping new ones");
            }
            return None;
        }
        let series = family.new_series();
        family.series.insert(labels.into(), series.clone());
        Some(series)
    }

    pub(super) fn retain_pods(&self, mut keep: impl FnMut(&str, &str, Option<&str>) -> bool) {
        let mut families = self.families.write();
        for family in families.values_mut().filter(|family| family.page == Page::Probes) {
            family.series.retain(|labels, _| {
                let pod = label_value(labels, "pod");
                let pod = label_value(labels, "namespace").zip(pod);
                pod.is_none_or(|(namespace, pod)| keep(namespace, pod, label_value(labels, "pod_uid")))
            });
            family.full = false;
        }
    }

    /// The metrics of a page that have series, sorted by name.
    pub(super) fn visit(&self, page: Page, mut visit: impl FnMut(&str, &Family)) {
        for (name, family) in self.families.read().iter() {
            if family.page == page && family.shown().next().is_some() {
                visit(name, family);
            }
        }
    }
}

impl Family {
    fn of_an_embedder(kind: Kind) -> Self {
        Self {
            kind,
            help: SharedString::const_str(""),
            buckets: DEFAULT,
            page: Page::Main,
            series: BTreeMap::new(),
            full: false,
        }
    }

    fn new_series(&self) -> Series {
        match self.kind {
            Kind::Counter => Series::Counter(Arc::default()),
            Kind::Gauge => Series::Gauge(Arc::default()),
            Kind::Histogram => Series::Histogram(Arc::new(Buckets {
                bounds: self.buckets,
                counts: (0..=self.buckets.len()).map(|_| AtomicU64::new(0)).collect(),
                sum: AtomicU64::new(0),
            })),
        }
    }

    /// Its series, without gauges with labels that are NaN: the facade cannot remove a series, so this stands for one that is gone.
    fn shown(&self) -> impl Iterator<Item = (&str, &Series)> {
        let is_gone = |labels: &str, series: &Series| match series {
            Series::Gauge(value) => {
                !labels.is_empty() && f64::from_bits(value.load(Ordering::Relaxed)).is_nan()
            }
            _ => false,
        };
        let series = self
            .series
            .iter()
            .map(|(labels, series)| (labels.as_ref(), series));
        series.filter(move |(labels, series)| !is_gone(labels, series))
    }

    pub(super) fn write(&self, name: &str, writer: &mut Writer<'_>) {
        writer.header(name, self.kind, &self.help);
        for (labels, series) in self.shown() {
            match series {
                Series::Counter(value) => writer.sample(name, labels, value.load(Ordering::Relaxed) as f64),
                Series::Gauge(value) => {
                    writer.sample(name, labels, f64::from_bits(value.load(Ordering::Relaxed)));
                }
                Series::Histogram(buckets) => {
                    let counts = buckets.counts.iter().map(|count| count.load(Ordering::Relaxed));
                    let sum = f64::from_bits(buckets.sum.load(Ordering::Relaxed));
                    writer.histogram(name, labels, buckets.bounds, counts, sum);
                }
            }
        }
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        // A value that equals a bound is in its bucket. NaN is beyond all, as in Prometheus.
        let at = match value.is_nan() {
            true => self.bounds.len(),
            false => self.bounds.partition_point(|&bound| bound < value),
        };
        if let Some(bucket) = self.counts.get(at) {
            bucket.fetch_add(count as u64, Ordering::Relaxed);
        }
        let add = |sum: u64| Some((f64::from_bits(sum) + value * count as f64).to_bits());
        // The closure never refuses.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The labels of a key as Prometheus writes them, sorted by name.
fn written_labels(key: &Key) -> String {
    let mut labels: Vec<&Label> = key.labels().collect();
    labels.sort_unstable_by_key(|label| label.key());
    let mut written = String::new();
    for label in labels {
        if !written.is_empty() {
            written.push(',');
        }
        written.push_str(&sanitized(label.key(), false));
        written.push_str("=\"");
        escape_label(label.value(), &mut written);
        written.push('"');
    }
    written
}

/// A name with only characters that Prometheus allows. A colon is allowed in names of metrics, not of labels.
fn sanitized(name: &str, colon: bool) -> Cow<'_, str> {
    let allowed = |at: usize, c: char| {
        c.is_ascii_alphabetic() || c == '_' || (colon && c == ':') || (at > 0 && c.is_ascii_digit())
    };
    if !name.is_empty() && name.char_indices().all(|(at, c)| allowed(at, c)) {
        return Cow::Borrowed(name);
    }
    let replaced = name
        .char_indices()
        .map(|(at, c)| if allowed(at, c) { c } else { '_' });
    let replaced: String = replaced.collect();
    Cow::Owned(if replaced.is_empty() {
        "_".to_owned()
    } else {
        replaced
    })
}

/// The value of a label among written ones. A quote within a value is escaped, so that none is taken for an end.
fn label_value<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (found, after) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        if found == name {
            return after.get(..end);
        }
        rest = after.get(end + 1..)?.strip_prefix(',')?;
    }
}
