//! The kubelet's metrics of how a node came up (`NodeStartupLatencyTracker`).

use k8s_openapi::jiff::Timestamp;
use metrics::gauge;

/// Notes when a node reached each stage of its start, and tells how long each took.
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

    /// The node was not there before. One that was there says nothing of how long it takes to come up.
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
