//! Whole clusters in virtual time.
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_cri::{RuntimeService, v1};
use kubelet_testing::{FaultPlan, Simulation, Workload};
use serde_json::json;

const HOUR: Duration = Duration::from_secs(3600);

fn pod(name: &str, image: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }))
    .unwrap()
}

#[test]
fn an_idle_node_is_left_alone() {
    let history = Simulation::seed(1).node("node-1").run(HOUR).unwrap();
    assert_eq!(history.count("node-1 the agent starts"), 1);
    assert_eq!(history.count("RunPodSandbox"), 0);
}

#[test]
fn pods_run_as_their_images_say() {
    let workload = Workload::pods([
        pod("web", "nginx"),
        pod("job", "sim/job"),
        pod("crash", "sim/crashes"),
    ]);
    let history = Simulation::seed(1)
        .node("node-1")
        .workload(workload)
        .run(HOUR)
        .unwrap();
    assert_eq!(history.count("StartContainer web/main"), 1, "{history}");
    assert!(history.count("StartContainer crash/main") > 5, "{history}");
    assert!(history.count("event BackOff default/crash") > 0, "{history}");
}

/// The simulation checks that nothing belongs to two containers, and that crashes lose nothing.
#[test]
fn agents_manage_cpus_devices_and_claims() {
    let history = Simulation::seed(3)
        .node("node-1")
        .workload(Workload::churn(4).every(Duration::from_secs(120)))
        .faults(
            FaultPlan::none()
                .state_crashes(0.1)
                .device_changes(Duration::from_secs(600)),
        )
        .managed_resources()
        .run(HOUR)
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(history.count("StartContainer") > 5, "{history}");
    assert!(history.count("the agent crashes") > 0, "{history}");
}

#[test]
fn probed_pods_live_through_restarts_of_their_agent() {
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 5});
    let dialled = json!({"tcpSocket": {"port": 80}, "periodSeconds": 3});
    let probed: Pod = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "nginx",
            "startupProbe": probe, "readinessProbe": dialled, "livenessProbe": probe}]},
    }))
    .unwrap();
    let history = Simulation::seed(5)
        .node("node-1")
        .workload(Workload::pods([probed]))
        .faults(FaultPlan::none().agent_restarts(Duration::from_secs(120)))
        .run(HOUR)
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(history.count("the agent is killed") > 5, "{history}");
    assert_eq!(history.count("StartContainer web/main"), 1, "{history}");
    assert_eq!(history.count("event Unhealthy"), 0, "{history}");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let simulation = Simulation::seed(seed).node("node-1").node("node-2");
        let simulation = simulation.workload(Workload::churn(5)).faults(FaultPlan::storm());
        simulation
            .run(HOUR / 6)
            .unwrap_or_else(|failure| panic!("{failure}"))
            .to_string()
    };
    let (first, again) = (history(3), history(3));
    let differs = first
        .lines()
        .zip(again.lines())
        .find(|(first, again)| first != again);
    assert!(first == again, "{differs:?}");
    assert_ne!(first, history(4));
}

#[test]
fn pods_come_and_go_in_good_weather_and_bad() {
    for (seed, faults) in [
        (0, FaultPlan::none()),
        (1, FaultPlan::storm()),
        (2, FaultPlan::storm()),
    ] {
        let simulation = Simulation::seed(seed)
            .node("node-1")
            .workload(Workload::churn(6))
            .faults(faults);
        let history = simulation
            .run(HOUR / 2)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert!(history.count("is gone") > 0, "{history}");
    }
}

/// An agent that starts each container twice is caught. The failure has the last steps and the code to reproduce it.
#[test]
fn what_should_never_be_is_told_with_the_steps_before_it() {
    let simulation = Simulation::seed(5)
        .node("node-1")
        .agent(|node, shutdown| async move {
            let sandbox = |attempt| v1::PodSandboxConfig {
                metadata: Some(v1::PodSandboxMetadata {
                    name: "web".into(),
                    namespace: "default".into(),
                    uid: "1".into(),
                    attempt,
                }),
                ..Default::default()
            };
            for attempt in 0..2 {
                let config = Some(sandbox(attempt));
                let made = node.runtime.run_pod_sandbox(v1::RunPodSandboxRequest {
                    config,
                    ..Default::default()
                });
                made.await?;
            }
            shutdown.cancelled().await;
            Ok(())
        });
    let failure = simulation.run(HOUR).unwrap_err();
    assert_eq!(failure.problems.len(), 1, "{failure}");
    assert!(failure.history.count("RunPodSandbox web#1") == 1, "{failure}");
    let replay = "Simulation::seed(5).node(\"node-1\").workload(Workload::none()).faults(FaultPlan::none())\
        .run(Duration::from_secs(3600))";
    assert!(failure.to_string().ends_with(replay), "{failure}");
}
