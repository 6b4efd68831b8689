//! The metrics bear the kubelet's names and labels, in virtual time.
use std::sync::Arc;
use std::time::Duration;

use super::rig::recorded::Recorded;
use super::rig::{Answers, Node, Pods, pod};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::SyncFailure;
use kubelet_core::{PodExt, ProbeResultCache};
use serde_json::json;
use tokio::time::Instant;

/// Looks each virtual second until the metric has this value.
async fn until(recorded: &Recorded, metric: &str, value: f64) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while recorded.value(metric) != value {
        assert!(
            Instant::now() < deadline,
            "{metric} is {}",
            recorded.value(metric)
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn working(lifecycle: &str, config: &str, is_static: &str) -> String {
    format!("kubelet_working_pods{{lifecycle={lifecycle},config={config},static={is_static}}}")
}

/// A pod of the API server: no static one.
fn of_api(uid: &str) -> Arc<Pod> {
    let mut pod = pod(uid);
    let source = [("kubernetes.io/config.source".to_owned(), "api".to_owned())];
    pod.metadata.annotations = Some(source.into());
    Arc::new(pod)
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_desired_active_working_restarted_and_orphaned() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let runtime = Pods::default();
    runtime.running("orphan");
    let (node, [file, api]) = Node::start(runtime, ["file", "api"]);
    let mut looked_into = Pod::clone(&of_api("regular"));
    looked_into.spec.as_mut().unwrap().ephemeral_containers =
        serde_json::from_value(json!([{"name": "one"}, {"name": "two"}])).unwrap();
    let ended: Pod = serde_json::from_value(json!({
        "metadata": {
            "namespace": "ns", "name": "ended", "uid": "ended",
            "annotations": {"kubernetes.io/config.source": "api"},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Succeeded"},
    }))
    .unwrap();
    let fixed = Arc::new(pod("fixed"));
    file.send(vec![fixed.clone()]).unwrap();
    // What runs and was listed by nobody so far waits for the sources that were not heard yet.
    until(&recorded, "kubelet_pod_deferrals_total{reason=sources}", 1.0).await;
    api.send(vec![Arc::new(looked_into), Arc::new(ended)]).unwrap();
    node.wait_for_phase("fixed", "Running").await;
    node.wait_for_phase("regular", "Running").await;
    until(&recorded, "kubelet_desired_pods{static=}", 2.0).await;
    until(&recorded, &working("terminated", "desired", ""), 1.0).await;
    for (metric, value) in [
        ("kubelet_desired_pods{static=true}", 1.0),
        ("kubelet_active_pods{static=true}", 1.0),
        ("kubelet_active_pods{static=}", 1.0),
        ("kubelet_mirror_pods{}", 0.0),
        ("kubelet_managed_ephemeral_containers{}", 2.0),
        ("kubelet_orphaned_runtime_pods_total{}", 1.0),
        (&working("sync", "desired", "true"), 1.0),
        (&working("sync", "desired", ""), 1.0),
        (&working("sync", "orphan", ""), 0.0),
    ] {
        assert_eq!(recorded.value(metric), value, "{metric}");
    }
    until(&recorded, &working("terminating", "runtime_only", "unknown"), 0.0).await;
    assert_eq!(recorded.all("kubelet_containers_per_pod_count{}"), [1.0; 3]);

    // Of the static pod two: what its source saw first, and what the runtime did then.
    for metric in [
        "kubelet_pod_start_duration_seconds{}",
        "kubelet_pod_worker_start_duration_seconds{}",
    ] {
        let all = recorded.all(metric);
        assert!(
            all.len() == 2 && all.iter().all(|took| (0.0..60.0).contains(took)),
            "{metric} {all:?}"
        );
    }
    for operation in ["create", "sync"] {
        let metric = format!("kubelet_pod_worker_duration_seconds{{operation_type={operation}}}");
        assert!(!recorded.all(&metric).is_empty(), "{metric}");
    }
    assert!(!recorded.all("kubelet_housekeeping_duration_seconds{}").is_empty());

    // It goes, hangs, and comes again under the same UID.
    node.runtime.kill_hangs.send_replace(true);
    file.send(vec![]).unwrap();
    until(&recorded, &working("terminating", "orphan", "true"), 1.0).await;
    file.send(vec![fixed]).unwrap();
    until(&recorded, &working("terminating", "desired", "true"), 1.0).await;
    node.runtime.kill_hangs.send_replace(false);
    until(&recorded, "kubelet_restarted_pods_total{static=true}", 1.0).await;
    until(&recorded, &working("sync", "desired", "true"), 1.0).await;
    assert_eq!(recorded.value("kubelet_restarted_pods_total{static=}"), 0.0);
    for operation in ["kill", "terminated"] {
        let metric = format!("kubelet_pod_worker_duration_seconds{{operation_type={operation}}}");
        assert!(!recorded.all(&metric).is_empty(), "{metric}");
    }
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_deferral_is_counted_when_it_begins() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let deferrals = |reason: &str| recorded.value(&format!("kubelet_pod_deferrals_total{{reason={reason}}}"));
    let runtime = Pods::default();
    *runtime.runtime_down.lock() = true;
    let back_off = |seconds| SyncFailure {
        reason: "CrashLoopBackOff".into(),
        message: String::new(),
        back_off_until: Some(Instant::now() + Duration::from_secs(seconds)),
    };
    let (node, [file]) = Node::start(runtime, ["file"]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(deferrals("runtime"), 1.0, "once, however long it lasts");
    *node.runtime.runtime_down.lock() = false;

    *node.runtime.fails.lock() = Some(back_off(300));
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    until(&recorded, "kubelet_pod_deferrals_total{reason=back-off}", 1.0).await;
    // It is looked at each minute or so, and still waits for the same.
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(deferrals("back-off"), 1.0);
    assert!(deferrals("retry") >= 2.0);
    *node.runtime.fails.lock() = Some(back_off(300));
    until(&recorded, "kubelet_pod_deferrals_total{reason=back-off}", 2.0).await;
    *node.runtime.fails.lock() = None;
    node.wait_for_phase("a", "Running").await;
    assert_eq!(deferrals("turn"), 0.0);

    node.runtime.kill_hangs.send_replace(true);
    let mut next = pod("a");
    next.metadata.uid = Some("next".into());
    file.send(vec![Arc::new(next)]).unwrap();
    until(&recorded, "kubelet_pod_deferrals_total{reason=turn}", 1.0).await;
    node.runtime.kill_hangs.send_replace(false);
    node.wait_for_phase("next", "Running").await;
    assert!(deferrals("status") >= 1.0);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn probes_are_counted_by_result() {
    let recorded = Recorded::default();
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let (prober, results) = (Answers::new(false), ProbeResultCache::new());
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], |builder| {
        builder.prober(prober.clone(), results.clone())
    });
    let mut web = pod("web");
    let container = &mut web.spec.as_mut().unwrap().containers[0];
    container.readiness_probe =
        Some(serde_json::from_value(json!({"exec": {"command": ["ready"]}, "periodSeconds": 1})).unwrap());
    file.send(vec![Arc::new(web.clone())]).unwrap();
    let total = |result: &str| {
        format!(
            "prober_probe_total{{probe_type=Readiness,result={result},container=c,pod=web,namespace=ns,pod_uid={}}}",
            web.uid()
        )
    };
    until(&recorded, &total("failed"), 2.0).await;
    let durations = "prober_probe_duration_seconds{probe_type=Readiness,container=c,pod=web,namespace=ns}";
    assert!(
        recorded.all(durations).is_empty(),
        "of what fails the time is not told"
    );
    prober.0.send_replace(true);
    until(&recorded, &total("successful"), 2.0).await;
    assert!(recorded.all(durations).len() >= 2);
    node.stop().await;
}
