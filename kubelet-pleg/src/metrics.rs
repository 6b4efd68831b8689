//! The kubelet's metrics of the PLEG, by the kubelet's names.

use kubelet_core::runtime::{ContainerState, RuntimePod, SandboxState};
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use std::time::Duration;

const RELIST_DURATION: &str = "kubelet_pleg_relist_duration_seconds";
const RELIST_INTERVAL: &str = "kubelet_pleg_relist_interval_seconds";
const POD_RELIST_DURATION: &str = "kubelet_pleg_pod_relist_duration_seconds";
const LAST_SEEN: &str = "kubelet_pleg_last_seen_seconds";
const DISCARD_EVENTS: &str = "kubelet_pleg_discard_events";
const RUNNING_PODS: &str = "kubelet_running_pods";
const RUNNING_CONTAINERS: &str = "kubelet_running_containers";

const CONNECTION_SUCCESSES: &str = "kubelet_evented_pleg_connection_success_count";
const CONNECTION_ERRORS: &str = "kubelet_evented_pleg_connection_error_count";
const CONNECTION_LATENCY: &str = "kubelet_evented_pleg_connection_latency_seconds";
/// Not one of the kubelet's: the kubelet does not check whether its events miss a change.
const MISSED_CHANGES: &str = "kubelet_evented_pleg_missed_changes_total";

pub(crate) fn describe() {
    describe_histogram!(RELIST_DURATION, "Seconds from the start of a relist to its end");
    describe_histogram!(RELIST_INTERVAL, "Seconds from one relist to the next");
    describe_histogram!(POD_RELIST_DURATION, "Seconds that the list of a single pod took");
    describe_gauge!(LAST_SEEN, "When the runtime was last listed, in Unix time");
    describe_counter!(DISCARD_EVENTS, "Events that were dropped; always 0");
    describe_gauge!(RUNNING_PODS, "Pods with a sandbox that is ready");
    describe_gauge!(RUNNING_CONTAINERS, "Containers of the runtime, by state");
    counter!(DISCARD_EVENTS).absolute(0);
}

pub(crate) fn relist_duration(took: Duration) {
    histogram!(RELIST_DURATION).record(took);
}

pub(crate) fn relist_interval(interval: Duration) {
    histogram!(RELIST_INTERVAL).record(interval);
}

pub(crate) fn pod_relist_duration(took: Duration) {
    histogram!(POD_RELIST_DURATION).record(took);
}

pub(crate) fn last_seen(unix_seconds: i64) {
    gauge!(LAST_SEEN).set(unix_seconds as f64);
}

pub(crate) fn describe_evented() {
    describe_counter!(
        CONNECTION_SUCCESSES,
        "How often the runtime's stream of events was obtained"
    );
    describe_counter!(
        CONNECTION_ERRORS,
        "How often the runtime's stream of events could not be obtained, or broke"
    );
    describe_histogram!(CONNECTION_LATENCY, "Seconds that obtaining the stream took");
    describe_counter!(
        MISSED_CHANGES,
        "Changed pods that a list found and no event reported"
    );
    counter!(CONNECTION_SUCCESSES).absolute(0);
    counter!(CONNECTION_ERRORS).absolute(0);
    counter!(MISSED_CHANGES).absolute(0);
}

pub(crate) fn connected(took: Duration) {
    counter!(CONNECTION_SUCCESSES).increment(1);
    histogram!(CONNECTION_LATENCY).record(took);
}

pub(crate) fn connection_failed() {
    counter!(CONNECTION_ERRORS).increment(1);
}

pub(crate) fn missed_changes(count: usize) {
    counter!(MISSED_CHANGES).increment(count as u64);
}

/// How many pods and containers are in which state. The numbers change as pods do, so that a list without changes costs
/// nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    pods: i64,
    created: i64,
    running: i64,
    exited: i64,
    unknown: i64,
}

impl Running {
    pub(crate) fn add(&mut self, pod: &RuntimePod) {
        self.count(pod, 1);
    }

    pub(crate) fn remove(&mut self, pod: &RuntimePod) {
        self.count(pod, -1);
    }

    pub(crate) fn publish(&self) {
        gauge!(RUNNING_PODS).set(self.pods as f64);
        gauge!(RUNNING_CONTAINERS, "container_state" => "created").set(self.created as f64);
        gauge!(RUNNING_CONTAINERS, "container_state" => "running").set(self.running as f64);
        gauge!(RUNNING_CONTAINERS, "container_state" => "exited").set(self.exited as f64);
        gauge!(RUNNING_CONTAINERS, "container_state" => "unknown").set(self.unknown as f64);
    }

    fn count(&mut self, pod: &RuntimePod, by: i64) {
        let is_ready = pod
            .sandboxes
            .iter()
            .any(|sandbox| sandbox.state == SandboxState::Ready);
        self.pods += if is_ready { by } else { 0 };
        for container in &pod.containers {
            *match container.state {
                ContainerState::Created => &mut self.created,
                ContainerState::Running => &mut self.running,
                ContainerState::Exited => &mut self.exited,
                ContainerState::Unknown => &mut self.unknown,
            } += by;
        }
    }
}
