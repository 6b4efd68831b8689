//! The kubelet's metrics of a node's start (`NodeStartupLatencyTracker`).

use k8s_openapi::jiff::Timestamp;
use metrics::gauge;

/// Records when the node reached each stage of its start, and reports how long each stage took.
#[derive(Debug)]
pub(crate) struct StartupLatency {
    booted: Option<Timestamp>,
    started: Timestamp,
    first_attempt: Option<Timestamp>,
    registered_new: Option<Timestamp>,
    ready: bool,
}

impl StartupLatency {
    pub(crate) fn new(booted: Option<Timestamp>, started: Timestamp) -> Self {
        Self {
            booted,
            started,
            first_attempt: None,
            registered_new: None,
            ready: false,
        }
    }

    pub(crate) fn attempts_to_register(&mut self, now: Timestamp) {
        self.first_attempt.get_or_insert(now);
    }

    /// Called when the Node object was created. A node that existed before reports no durations.
    pub(crate) fn registered_new(&mut self, now: Timestamp) {
        let (Some(attempt), None) = (self.first_attempt, self.registered_new) else {
            return;
        };
        self.registered_new = Some(now);
        if let Some(booted) = self.booted {
            gauge!("kubelet_node_startup_pre_kubelet_duration_seconds").set(seconds(booted, self.started));
        }
        gauge!("kubelet_node_startup_pre_registration_duration_seconds").set(seconds(self.started, attempt));
        gauge!("kubelet_node_startup_registration_duration_seconds").set(seconds(attempt, now));
    }

    pub(crate) fn ready(&mut self, now: Timestamp) {
        let Some(registered) = self.registered_new.filter(|_| !self.ready) else {
            return;
        };
        self.ready = true;
        gauge!("kubelet_node_startup_post_registration_duration_seconds").set(seconds(registered, now));
        if let Some(booted) = self.booted {
            gauge!("kubelet_node_startup_duration_seconds").set(seconds(booted, now));
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use k8s_openapi::jiff::SignedDuration;
    use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
    use parking_lot::Mutex;

    use super::*;

    /// The gauges, by the stage in their names, in milliseconds.
    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<BTreeMap<String, i64>>>);

    struct Stage(Recorded, String);

    impl GaugeFn for Stage {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, seconds: f64) {
            self.0
                .0
                .lock()
                .insert(self.1.clone(), (seconds * 1000.0).round() as i64);
        }
    }

    impl Recorder for Recorded {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            let stage = key.name().strip_prefix("kubelet_node_startup_").unwrap();
            let stage = stage.strip_suffix("duration_seconds").unwrap();
            Gauge::from_arc(Arc::new(Stage(self.clone(), stage.to_owned())))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Attempt,
        New,
        Ready,
    }
    use Step::{Attempt, New, Ready};

    #[test]
    fn each_stage_counts_once_and_none_is_left_out() {
        // when each step is reached, in milliseconds from the start; the expected metrics
        type Case = (&'static [(i64, Step)], &'static [(&'static str, i64)]);
        let cases: [Case; 7] = [
            (&[], &[]),
            (&[(600, Attempt)], &[]),
            (
                &[(600, Attempt), (900, Attempt), (1000, New)],
                &[
                    ("pre_kubelet_", 100),
                    ("pre_registration_", 600),
                    ("registration_", 400),
                ],
            ),
            (
                &[(800, Attempt), (1200, New), (2300, Ready)],
                &[
                    ("", 2400),
                    ("post_registration_", 1100),
                    ("pre_kubelet_", 100),
                    ("pre_registration_", 800),
                    ("registration_", 400),
                ],
            ),
            (
                &[
                    (100, Attempt),
                    (600, New),
                    (900, New),
                    (1000, Ready),
                    (1700, Ready),
                ],
                &[
                    ("", 1100),
                    ("post_registration_", 400),
                    ("pre_kubelet_", 100),
                    ("pre_registration_", 100),
                    ("registration_", 500),
                ],
            ),
            // It did not try to register, or it was there before.
            (&[(700, New), (800, Ready)], &[]),
            (&[(100, Attempt), (800, Ready)], &[]),
        ];
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |milliseconds: i64| start + SignedDuration::from_millis(milliseconds);
        for (steps, expected) in cases {
            for booted in [Some(at(-100)), None] {
                let recorded = Recorded::default();
                metrics::with_local_recorder(&recorded, || {
                    let mut latency = StartupLatency::new(booted, start);
                    for (time, step) in steps {
                        match step {
                            Attempt => latency.attempts_to_register(at(*time)),
                            New => latency.registered_new(at(*time)),
                            Ready => latency.ready(at(*time)),
                        }
                    }
                });
                let needs_boot = |stage: &str| matches!(stage, "" | "pre_kubelet_");
                let expected = expected
                    .iter()
                    .filter(|(stage, _)| booted.is_some() || !needs_boot(stage));
                let expected = expected.map(|(stage, time)| ((*stage).to_owned(), *time));
                assert_eq!(*recorded.0.lock(), expected.collect(), "{steps:?} {booted:?}");
            }
        }
    }
}
