//! Stopping pods and containers: hooks, grace periods, order.

use std::time::Duration;

use kubelet_core::runtime::ContainerState;
use kubelet_core::{PodExt, Runtime, RuntimeReader};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fake::Script;
use crate::rig::{Rig, pod};

const SECOND: Duration = Duration::from_secs(1);

fn exec_hook() -> Value {
    json!({ "preStop": { "exec": { "command": ["bye"] } } })
}

#[tokio::test(start_paused = true)]
async fn sidecars_stop_last_and_in_reverse() {
    let rig = Rig::new().await;
    for name in ["one", "two", "main"] {
        rig.fake.script(
            name,
            Script {
                stops_in: SECOND,
                ..Script::default()
            },
        );
    }
    let sidecar = |name| json!({ "name": name, "image": "i", "restartPolicy": "Always" });
    let pod = pod(
        "p",
        json!({
            "terminationGracePeriodSeconds": 30,
            "initContainers": [sidecar("one"), sidecar("two")],
            "containers": [{ "name": "main", "image": "i" }],
        }),
    );
    for _ in 0..3 {
        rig.sync_ok(&pod).await;
    }
    rig.fake.take_calls();
    let running = rig.manager.pods(false).await.unwrap();
    assert_eq!(running[0].containers.len(), 3);
    rig.manager.kill_pod(Some(&pod), &running[0], None).await.unwrap();
    let expected = [
        "StopContainer main 30",
        "stopped main",
        "StopContainer two 29",
        "stopped two",
        "StopContainer one 28",
        "stopped one",
        "StopPodSandbox",
    ];
    assert_eq!(rig.fake.take_calls(), expected);
    assert!(rig.manager.pods(false).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hook_uses_up_grace_but_not_the_last_two_seconds() {
    for (hook_takes, left) in [(3, 7), (60, 2)] {
        let rig = Rig::new().await;
        let exec = (hook_takes * SECOND, 0);
        rig.fake.script(
            "main",
            Script {
                exec,
                ..Script::default()
            },
        );
        let containers = json!([{ "name": "main", "image": "i", "lifecycle": exec_hook() }]);
        let pod = pod(
            "p",
            json!({ "terminationGracePeriodSeconds": 10, "containers": containers }),
        );
        rig.sync_ok(&pod).await;
        rig.fake.take_calls();
        let running = rig.manager.pods(false).await.unwrap();
        let start = Instant::now();
        rig.manager.kill_pod(Some(&pod), &running[0], None).await.unwrap();
        assert_eq!(start.elapsed(), (hook_takes * SECOND).min(10 * SECOND));
        let stop = format!("StopContainer main {left}");
        let expected = ["ExecSync main bye", &stop, "stopped main", "StopPodSandbox"];
        assert_eq!(rig.fake.take_calls(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_takes_too_long_goes_on_while_its_container_stops() {
    let failed = "FailedPreStopHook spec.containers{main}: PreStopHook failed";
    // The durations of the hook and of the stop, and whether the hook ends with its container.
    for (hook_takes, stops_in, ends_with_container) in [(3, 2, false), (60, 1, true)] {
        let rig = Rig::new().await;
        rig.fake.script(
            "main",
            Script {
                exec: (hook_takes * SECOND, 0),
                stops_in: stops_in * SECOND,
                ..Script::default()
            },
        );
        let containers = json!([{ "name": "main", "image": "i", "lifecycle": exec_hook() }]);
        let pod = pod(
            "p",
            json!({ "terminationGracePeriodSeconds": 2, "containers": containers }),
        );
        rig.sync_ok(&pod).await;
        rig.fake.take_calls();
        rig.events.take();
        let running = rig.manager.pods(false).await.unwrap();
        let start = Instant::now();
        rig.manager.kill_pod(Some(&pod), &running[0], None).await.unwrap();
        assert_eq!(start.elapsed(), (2 + stops_in) * SECOND);
        let expected = [
            "ExecSync main bye",
            "StopContainer main 2",
            "stopped main",
            "StopPodSandbox",
        ];
        assert_eq!(rig.fake.take_calls(), expected);
        let told = rig.events.take().iter().any(|event| event == failed);
        assert_eq!(told, ends_with_container, "{hook_takes} s");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_any_more_is_stopped_by_its_annotations() {
    let rig = Rig::new().await;
    rig.fake.script(
        "main",
        Script {
            exec: (SECOND, 1),
            ..Script::default()
        },
    );
    let containers = json!([{ "name": "main", "image": "i", "lifecycle": exec_hook() }]);
    let spec = json!({ "terminationGracePeriodSeconds": 9, "containers": containers });
    rig.sync_ok(&pod("p", spec)).await;
    rig.fake.take_calls();
    rig.events.take();
    let running = rig.manager.pods(false).await.unwrap();
    rig.manager.kill_pod(None, &running[0], None).await.unwrap();
    let expected = [
        "ExecSync main bye",
        "StopContainer main 8",
        "stopped main",
        "StopPodSandbox",
    ];
    assert_eq!(rig.fake.take_calls(), expected);
    let expected = [
        "Killing implicitly required container main: Stopping container main",
        "FailedPreStopHook implicitly required container main: PreStopHook failed",
    ];
    assert_eq!(rig.events.take(), expected);

    // Again, with another grace period; and for a container that does not exist.
    rig.manager
        .kill_pod(None, &running[0], Some(SECOND))
        .await
        .unwrap();
    assert_eq!(rig.fake.take_calls()[1], "StopContainer main 2");
    rig.fake.forget_containers();
    rig.manager.kill_pod(None, &running[0], None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_stopped_is_told() {
    let rig = Rig::new().await;
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i" }] }));
    rig.sync_ok(&pod).await;
    let running = rig.manager.pods(false).await.unwrap();
    rig.fake.fail_next("StopContainer");
    let error = rig
        .manager
        .kill_pod(Some(&pod), &running[0], None)
        .await
        .unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("ns/p") && error.contains("KillContainerError"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_sync_is_dropped_is_completed_before_the_kill() {
    let rig = Rig::new().await;
    let script = Script {
        starts_in: 3 * SECOND,
        ..Script::default()
    };
    rig.fake.script("main", script);
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i" }] }));
    let sync = tokio::time::timeout(SECOND, rig.sync(&pod));
    assert!(sync.await.is_err(), "the start takes longer");
    rig.fake.take_calls();

    let running = rig.manager.pod(&pod.uid()).await.unwrap().unwrap();
    assert_eq!(running.containers[0].state, ContainerState::Created);
    // The kill, too, may be dropped.
    let kill = || rig.manager.kill_pod(Some(&pod), &running, Some(SECOND));
    assert!(tokio::time::timeout(SECOND, kill()).await.is_err());
    kill().await.unwrap();
    let expected = ["StopContainer main 2", "stopped main", "StopPodSandbox"];
    assert_eq!(rig.fake.take_calls(), expected);
    let status = rig.status(&pod).await;
    assert_eq!(status.containers[0].exit_code, 143, "it had started");

    // There is nothing to complete the next time.
    kill().await.unwrap();
    assert_eq!(rig.fake.take_calls(), ["StopPodSandbox"]);
}
