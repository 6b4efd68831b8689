//! What is known of a metric before anybody emits it.

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The endpoint that shows a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Main,
    Probes,
    Slis,
}

/// What is known of a metric before anybody emits it.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    /// Sorted. Metrics without labels are shown from the start.
    pub(super) labels: &'static [&'static str],
    /// Upper bounds, ascending, without the infinite one.
    pub(super) buckets: &'static [f64],
    pub(super) page: Page,
    pub(super) when_used: bool,
}

impl Definition {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            kind,
            help,
            labels,
            buckets: &[],
            page: Page::Main,
            when_used: false,
        }
    }

    pub(super) const fn page(self, page: Page) -> Self {
        Self { page, ..self }
    }

    /// Not shown before its first value, though it has no labels: the kubelet registers it with the feature it is of.
    pub(super) const fn when_used(self) -> Self {
        Self {
            when_used: true,
            ..self
        }
    }
}

pub(super) const fn counter(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> Definition {
    Definition::new(name, Kind::Counter, help, labels)
}

pub(super) const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
) -> Definition {
    Definition::new(name, Kind::Gauge, help, labels)
}

pub(super) const fn histogram(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    buckets: &'static [f64],
) -> Definition {
    Definition {
        buckets,
        ..Definition::new(name, Kind::Histogram, help, labels)
    }
}
