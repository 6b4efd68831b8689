//! Whole clusters in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "a test")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
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

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let simulation = Simulation::seed(seed).node("node-1").node("node-2");
        let simulation = simulation.workload(Workload::churn(6)).faults(FaultPlan::storm());
        simulation
            .run(HOUR)
            .unwrap_or_else(|failure| panic!("{failure}"))
            .to_string()
    };
    let first = history(3);
    for _ in 0..3 {
        let again = history(3);
        let differs = first
            .lines()
            .zip(again.lines())
            .position(|(first, again)| first != again);
        assert!(
            first == again,
            "line {differs:?}: {:?}",
            differs.map(|line| {
                (
                    first
                        .lines()
                        .skip(line.saturating_sub(5))
                        .take(10)
                        .collect::<Vec<_>>(),
                    again.lines().skip(line).take(3).collect::<Vec<_>>(),
                )
            })
        );
    }
    assert_ne!(first, history(4));
}

#[test]
fn pods_come_and_go_in_good_weather_and_bad() {
    for seed in 0..6 {
        let faults = if seed % 3 == 0 {
            FaultPlan::none()
        } else {
            FaultPlan::storm()
        };
        let simulation = Simulation::seed(seed)
            .node("node-1")
            .workload(Workload::churn(8))
            .faults(faults);
        let history = simulation.run(HOUR).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(history.count("is gone") > 0, "{history}");
    }
}
