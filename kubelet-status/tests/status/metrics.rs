//! The metrics bear the kubelet's names, and its numbers.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, PodExt, PodStatusReporter, PodUid};
use kubelet_status::{ApiServerSink, StatusManager, StatusManagerConfig, StatusManagerHandle};
use kubelet_testing::api_server::Verb;
use kubelet_testing::{ApiServer, eventually};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// The sum of each counter, the last value of each gauge, all of each histogram.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Metric(Recorded, String);

impl Recorded {
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

    fn value(&self, name: &str) -> Vec<f64> {
        self.0
            .lock()
            .get(&format!("kubelet_{name}"))
            .cloned()
            .unwrap_or_default()
    }
}

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

/// An API server and a manager that reports to it.
fn start() -> (ApiServer, StatusManagerHandle) {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = ApiServer::builder().clock(clock).seed(1).build();
    let mut config = StatusManagerConfig::default();
    config.clock = clock;
    let manager = StatusManager::with_config(ApiServerSink::new(server.client()), config);
    let handle = manager.handle();
    tokio::spawn(manager.run(CancellationToken::new()));
    (server, handle)
}

fn pod(server: &ApiServer, name: &str, spec: Value) -> Arc<Pod> {
    let mut pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": "one",
        "containers": [{"name": "c", "image": "busybox:1.36"}], "initContainers": [{"name": "i", "image": "busybox:1.36"}]}});
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    Arc::new(
        server
            .create(&serde_json::from_value::<Pod>(pod).unwrap())
            .unwrap(),
    )
}

fn status(container: Value) -> ApiPodStatus {
    let status = |name: &str, state: Value| {
        json!({"name": name, "image": "i", "imageID": "i", "ready": true,
        "containerID": format!("fake://{name}"), "restartCount": 0, "state": state, "lastState": {}})
    };
    let init = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:03Z",
        "finishedAt": "2026-01-01T00:00:05Z"}});
    serde_json::from_value(
        json!({"phase": "Running", "containerStatuses": [status("c", container)],
        "initContainerStatuses": [status("i", init)]}),
    )
    .unwrap()
}

async fn wait_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn how_long_pods_take_to_start() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let (server, handle) = start();
    let there = |name: &str| Arc::new(server.get::<Pod>("default", name).unwrap().unwrap());
    let running = || status(json!({"running": {"startedAt": "2026-01-01T00:00:09Z"}}));
    // pod, what of it is special → whether its start counts at all, and for the service level
    let cases = [
        ("plain", json!({}), true, true),
        (
            "stateful",
            json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}),
            true,
            false,
        ),
        ("on-the-host", json!({"hostNetwork": true}), true, true),
    ];
    for (name, spec, _, _) in &cases {
        let pod = pod(&server, name, spec.clone());
        handle.observe_pod(&pod);
        handle.record_image_started_pulling(&pod.uid());
    }
    wait_seconds(3).await;
    for (name, ..) in &cases {
        handle.record_image_finished_pulling(&there(name).uid());
    }
    wait_seconds(7).await;
    let (mut total, mut sli) = (0, 0);
    for (name, _, counts, counts_as_sli) in cases {
        handle.set_pod_status(&there(name), running());
        eventually!(there(name).status.clone().unwrap().phase, |phase| phase
            .as_deref()
            == Some("Running"));
        assert_eq!(
            recorded.value("pod_start_total_duration_seconds{}").len(),
            total,
            "not seen to run yet"
        );
        for _ in 0..2 {
            handle.observe_pod(&there(name));
        }
        total += usize::from(counts);
        sli += usize::from(counts_as_sli);
        assert_eq!(
            recorded.value("pod_start_total_duration_seconds{}").len(),
            total,
            "{name}"
        );
        assert_eq!(
            recorded.value("pod_start_sli_duration_seconds{}").len(),
            sli,
            "{name}"
        );
    }
    let whole = |values: Vec<f64>| values.iter().map(|value| value.round()).collect::<Vec<_>>();
    assert_eq!(
        whole(recorded.value("pod_start_total_duration_seconds{}")),
        [10.0; 3]
    );
    // Without 3 s of pulling and 2 s of initialization.
    assert_eq!(
        whole(recorded.value("pod_start_sli_duration_seconds{}")),
        [5.0; 2]
    );
    assert_eq!(
        whole(recorded.value("first_network_pod_start_sli_duration_seconds{}")),
        [5.0]
    );
}

#[tokio::test(start_paused = true)]
async fn who_ran_before_or_could_not_be_scheduled_is_not_measured() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let (server, handle) = start();
    for (name, before) in [
        ("before", json!({"startTime": "2025-12-31T00:00:00Z"})),
        (
            "late",
            json!({"conditions": [{"type": "PodScheduled", "status": "False"}]}),
        ),
        ("over", json!({"phase": "Failed"})),
    ] {
        let mut pod = Pod::clone(&pod(&server, name, json!({})));
        pod.status = Some(serde_json::from_value(before).unwrap());
        handle.observe_pod(&Arc::new(pod.clone()));
        pod.status = Some(status(json!({"running": {"startedAt": "2026-01-01T00:00:09Z"}})));
        let pod = Arc::new(pod);
        handle.set_pod_status(&pod, ApiPodStatus::clone(pod.status.as_ref().unwrap()));
        wait_seconds(1).await;
        handle.observe_pod(&pod);
        handle.observe_pod(&pod);
    }
    assert!(recorded.value("pod_start_total_duration_seconds{}").is_empty());
}

#[tokio::test(start_paused = true)]
async fn how_long_a_status_takes_from_its_first_change() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let (server, handle) = start();
    let pod = pod(&server, "web", json!({}));
    server
        .faults()
        .on(Verb::Patch)
        .first(1)
        .slow(Duration::from_millis(1500));
    handle.set_pod_status(&pod, status(json!({"waiting": {}})));
    eventually!(
        recorded.value("pod_status_sync_duration_seconds{}"),
        |values| *values == [1.5]
    );
    // Both changes are told in one patch, at the third try: from the first of them on it counts.
    server.faults().clear();
    server.down_for(Duration::from_secs(1));
    handle.set_pod_status(&pod, status(json!({"running": {}})));
    wait_seconds(1).await;
    handle.set_pod_status(&pod, status(json!({"waiting": {}})));
    eventually!(
        recorded.value("pod_status_sync_duration_seconds{}"),
        |values| *values == [1.5, 1.5]
    );
}

#[tokio::test(start_paused = true)]
async fn ends_and_resizes_are_counted() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let (server, handle) = start();
    let pod = pod(&server, "web", json!({}));
    let ended = || json!({"terminated": {"exitCode": 3, "reason": "Error"}});
    for state in [ended(), ended(), json!({"running": {}}), ended()] {
        handle.set_pod_status(&pod, status(state));
    }
    let terminated = |labels: &str| recorded.value(&format!("terminated_containers_total{{{labels}}}"));
    assert_eq!(
        terminated("container_type=container,exit_code=3,reason=Error"),
        [2.0]
    );
    assert_eq!(
        terminated("container_type=init_container,exit_code=0,reason=Completed"),
        [1.0]
    );

    let counts = || {
        let pending = |reason: &str| recorded.value(&format!("pod_pending_resizes{{reason={reason}}}"));
        [
            pending("deferred"),
            pending("infeasible"),
            recorded.value("pod_in_progress_resizes{}"),
        ]
        .concat()
    };
    let uid = |uid: &str| PodUid::new(uid);
    assert!(handle.set_pod_resize_pending_condition(&uid("1"), "Deferred", "", 1));
    assert!(handle.set_pod_resize_pending_condition(&uid("2"), "Infeasible", "", 1));
    assert_eq!(
        handle.set_pod_resize_in_progress_condition(&uid("2"), "", "", 7),
        (7, true)
    );
    assert_eq!(counts(), [1.0, 1.0, 1.0]);
    assert!(handle.is_pod_resize_deferred(&uid("1")) && handle.is_pod_resize_infeasible(&uid("2")));
    assert!(!handle.is_pod_resize_deferred(&uid("2")) && !handle.is_pod_resize_infeasible(&uid("3")));
    assert_eq!(handle.clear_pod_resize_in_progress_condition(&uid("2")), Some(7));
    handle.clear_pod_resize_pending_condition(&uid("1"));
    assert_eq!(counts(), [0.0, 1.0, 0.0]);
    // With its pod a resize is forgotten.
    handle.remove_orphaned_statuses(&[uid("1")].into());
    assert_eq!(counts(), [0.0, 0.0, 0.0]);
    assert!(handle.pod_resize_conditions(&uid("2")).is_empty());
}
