//! The life of a pod, from its first sync to its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::cgroups::CgroupDriver;
use kubelet_core::runtime::{ContainerStart, ContainerState, StartRecord, SyncAction};
use kubelet_core::{PodExt, RootDir, Runtime, RuntimeReader};
use kubelet_cri::{Code, v1};
use kubelet_kuberuntime::NodeSettings;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, advance};

use crate::fake::Script;
use crate::rig::{Rig, pod};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn init_containers_then_the_others() {
    let rig = Rig::new().await;
    rig.fake.script(
        "setup",
        Script {
            runs_for: Some(SECOND),
            ..Script::default()
        },
    );
    let pod = pod(
        "web",
        json!({
            "initContainers": [{ "name": "setup", "image": "i" }],
            "containers": [{ "name": "a", "image": "i" }, { "name": "b", "image": "i" }],
        }),
    );
    rig.sync_ok(&pod).await;
    let calls = rig.fake.take_calls();
    assert_eq!(
        calls,
        [
            "RunPodSandbox web",
            "CreateContainer setup 0",
            "StartContainer setup"
        ]
    );
    rig.sync_ok(&pod).await;
    assert!(rig.fake.take_calls().is_empty(), "it waits");

    advance(SECOND).await;
    rig.sync_ok(&pod).await;
    let calls = rig.fake.take_calls();
    let expected = [
        "CreateContainer a 0",
        "StartContainer a",
        "CreateContainer b 0",
        "StartContainer b",
    ];
    assert_eq!(calls, expected);
    rig.sync_ok(&pod).await;
    assert!(rig.fake.take_calls().is_empty(), "all is as it should be");

    let events = rig.events.take();
    assert!(
        events.contains(&"Created spec.initContainers{setup}: Container created".to_owned()),
        "{events:?}"
    );
    assert!(
        events.contains(&"Started spec.containers{b}: Container started".to_owned()),
        "{events:?}"
    );

    let status = rig.status(&pod).await;
    assert_eq!(status.ips, ["10.88.0.5"]);
    assert_eq!(status.running_containers().count(), 2);
    let setup = status.container("setup").unwrap();
    assert_eq!(
        (setup.state, setup.exit_code, setup.reason.as_str()),
        (ContainerState::Exited, 0, "Completed")
    );
    assert_ne!(setup.hash, 0);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_keeps_failing_waits_longer_each_time() {
    let rig = Rig::new().await;
    rig.fake.script(
        "main",
        Script {
            runs_for: Some(SECOND),
            exit_code: 7,
            ..Script::default()
        },
    );
    let pod = pod(
        "crash",
        json!({ "containers": [{ "name": "main", "image": "i" }] }),
    );
    rig.sync_ok(&pod).await;
    advance(SECOND).await;
    rig.sync_ok(&pod).await;
    rig.events.take();

    for (restarts, wait, said) in [(1, 10, "10s"), (2, 20, "20s"), (3, 40, "40s"), (4, 80, "1m20s")] {
        advance(SECOND).await;
        let result = rig.sync(&pod).await;
        let failure = result.results[0].failure.clone().unwrap();
        assert_eq!(result.results[0].action, SyncAction::StartContainer);
        assert_eq!(failure.reason, "CrashLoopBackOff");
        let expected = format!("back-off {said} restarting failed container=main pod=crash_ns(crash)");
        assert_eq!(failure.message, expected);
        assert_eq!(result.back_off_until(), Some(Instant::now() + wait * SECOND));
        let event =
            "BackOff spec.containers{main}: Back-off restarting failed container main in pod crash_ns(crash)";
        assert_eq!(rig.events.take(), [event]);

        advance((wait - 1) * SECOND).await;
        assert!(!rig.sync(&pod).await.is_ok(), "a second too early");
        advance(SECOND).await;
        rig.sync_ok(&pod).await;
        rig.events.take();
        let status = rig.status(&pod).await;
        assert_eq!(status.container("main").unwrap().restart_count, restarts + 1);
    }

    advance(SECOND).await;
    assert!(!rig.sync(&pod).await.is_ok());
    rig.manager.forget_pod(&pod.uid());
    rig.sync_ok(&pod).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_container_is_restarted_and_no_other() {
    let rig = Rig::new().await;
    let spec = |image| {
        json!({
            "terminationGracePeriodSeconds": 5,
            "containers": [{ "name": "a", "image": image }, { "name": "b", "image": "same" }],
        })
    };
    rig.sync_ok(&pod("p", spec("one"))).await;
    rig.fake.take_calls();
    rig.events.take();
    rig.sync_ok(&pod("p", spec("two"))).await;
    let calls = rig.fake.take_calls();
    assert_eq!(
        calls,
        [
            "StopContainer a 5",
            "stopped a",
            "CreateContainer a 1",
            "StartContainer a"
        ]
    );
    let killing = "Killing spec.containers{a}: Container a definition changed, will be restarted";
    assert_eq!(rig.events.take()[0], killing);
}

#[tokio::test(start_paused = true)]
async fn a_new_agent_takes_over_what_runs() {
    let mut rig = Rig::new().await;
    let pod = pod(
        "p",
        json!({
            "initContainers": [{ "name": "side", "image": "i", "restartPolicy": "Always" }],
            "containers": [{ "name": "main", "image": "i" }],
        }),
    );
    rig.sync_ok(&pod).await;
    rig.sync_ok(&pod).await;
    rig.fake.signal("main", 9);
    rig.sync_ok(&pod).await;
    let before = rig.status(&pod).await;
    assert_eq!(before.running_containers().count(), 2);
    let killed = before
        .containers
        .iter()
        .find(|c| c.name == "main" && c.state == ContainerState::Exited);
    assert_eq!(killed.unwrap().exit_code, 137);
    rig.fake.take_calls();

    rig.restart().await;
    rig.sync_ok(&pod).await;
    assert!(rig.fake.take_calls().is_empty(), "nothing is started twice");
    rig.fake.signal("main", 9);
    rig.sync_ok(&pod).await;
    assert_eq!(
        rig.fake.take_calls(),
        ["CreateContainer main 2", "StartContainer main"]
    );
}

#[tokio::test(start_paused = true)]
async fn restart_counts_go_on_where_only_logs_are_left() {
    let rig = Rig::new().await;
    let logs = rig.dir.path().join("logs/ns_p_p/main");
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join("4.log"), "").unwrap();
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i" }] }));
    rig.sync_ok(&pod).await;
    assert_eq!(rig.status(&pod).await.container("main").unwrap().restart_count, 5);
}

#[tokio::test(start_paused = true)]
async fn each_step_tells_how_it_failed() {
    let rig = Rig::new().await;
    let pod = pod("p", json!({ "containers": [{ "name": "main", "image": "i" }] }));
    let failing = async |call, reason, event| {
        rig.events.take();
        rig.fake.fail_next(call);
        let result = rig.sync(&pod).await;
        let failure = result
            .results
            .iter()
            .find_map(|result| result.failure.clone())
            .unwrap();
        assert_eq!(failure.reason, reason);
        assert!(failure.message.contains("broken"), "{}", failure.message);
        assert!(rig.events.take().contains(&String::from(event)), "{event}");
    };
    failing(
        "RunPodSandbox",
        "CreatePodSandboxError",
        "FailedCreatePodSandBox : Failed to create pod sandbox: rpc error: code = Internal desc = broken",
    )
    .await;
    failing(
        "CreateContainer",
        "CreateContainerError",
        "Failed spec.containers{main}: Error: broken",
    )
    .await;
    failing(
        "StartContainer",
        "RunContainerError",
        "Failed spec.containers{main}: Error: broken",
    )
    .await;
    rig.sync_ok(&pod).await;
    let status = rig.status(&pod).await;
    assert_eq!(status.containers.len(), 2, "one was made and never started");
    assert_eq!(status.running_containers().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_not_ready_is_replaced() {
    let rig = Rig::new().await;
    rig.fake.script(
        "setup",
        Script {
            runs_for: Some(SECOND),
            ..Script::default()
        },
    );
    let pod = pod(
        "p",
        json!({
            "initContainers": [{ "name": "setup", "image": "i" }],
            "containers": [{ "name": "main", "image": "i" }],
        }),
    );
    rig.sync_ok(&pod).await;
    advance(SECOND).await;
    rig.sync_ok(&pod).await;
    rig.fake.take_calls();
    rig.fake.lose_sandboxes();
    rig.sync_ok(&pod).await;
    let expected = [
        "StopContainer main 2",
        "stopped main",
        "StopPodSandbox",
        "RemoveContainer setup",
        "RunPodSandbox p",
        "CreateContainer setup 1",
        "StartContainer setup",
    ];
    assert_eq!(rig.fake.take_calls(), expected);
    assert!(rig.events.take_reasons().contains(&"SandboxChanged".to_owned()));
    let status = rig.status(&pod).await;
    assert_eq!(
        status
            .sandboxes
            .iter()
            .map(|sandbox| sandbox.attempt)
            .collect::<Vec<_>>(),
        [1, 0]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_post_start_hook_kills_its_container() {
    let rig = Rig::new().await;
    rig.fake.script(
        "main",
        Script {
            exec: (SECOND, 3),
            ..Script::default()
        },
    );
    let hook = json!({ "postStart": { "exec": { "command": ["say", "hi"] } } });
    let pod = pod(
        "p",
        json!({ "containers": [{ "name": "main", "image": "i", "lifecycle": hook }] }),
    );
    let result = rig.sync(&pod).await;
    let failure = result.results.last().unwrap().failure.clone().unwrap();
    assert_eq!(failure.reason, "PostStartHookError");
    let message = "Exec lifecycle hook ([say hi]) for Container \"main\" in Pod \"p_ns(p)\" failed - \
                   error: command 'say hi' exited with 3: , message: \"\"";
    assert_eq!(failure.message, message);
    let reasons = rig.events.take_reasons();
    assert!(
        reasons.ends_with(&["Started", "FailedPostStartHook", "Killing"].map(String::from)),
        "{reasons:?}"
    );
    assert_eq!(rig.status(&pod).await.running_containers().count(), 0);
}

/// Records which containers start over.
#[derive(Default)]
struct StartsOver {
    names: Mutex<Vec<String>>,
    fails: AtomicBool,
}

#[async_trait]
impl StartRecord for StartsOver {
    async fn about_to_start(&self, _: &Pod, _: &ContainerStart) -> kubelet_core::Result<()> {
        Ok(())
    }

    async fn about_to_start_over(&self, _: &Pod, container: &str) -> kubelet_core::Result<()> {
        self.names.lock().push(container.to_owned());
        match self.fails.load(Ordering::Relaxed) {
            true => Err(kubelet_core::Error::Cancelled),
            false => Ok(()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_start_over_where_a_rule_asks_for_it() {
    let rig = Rig::new().await;
    rig.fake.script(
        "job",
        Script {
            runs_for: Some(SECOND),
            exit_code: 42,
            ..Script::default()
        },
    );
    let rules =
        json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [42] } }]);
    let pod = pod(
        "p",
        json!({
            "containers": [
                { "name": "job", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules },
                { "name": "other", "image": "i" },
            ],
        }),
    );
    rig.sync_ok(&pod).await;
    advance(SECOND).await;
    rig.fake.take_calls();
    // What starts over is not lost: that is recorded before it is removed.
    let starts = StartsOver::default();
    starts.fails.store(true, Ordering::Relaxed);
    let status = rig.status(&pod).await;
    let result = rig.manager.sync_pod_recorded(&pod, &status, &starts).await;
    assert!(!result.is_ok());
    assert_eq!(rig.fake.take_calls(), ["StopContainer other 2", "stopped other"]);
    starts.fails.store(false, Ordering::Relaxed);
    let status = rig.status(&pod).await;
    let result = rig.manager.sync_pod_recorded(&pod, &status, &starts).await;
    assert!(result.is_ok(), "{:?}", result.summary());
    assert_eq!(
        rig.fake.take_calls(),
        ["RemoveContainer other", "RemoveContainer job"]
    );
    assert_eq!(*starts.names.lock(), ["other", "other", "job"]);
    rig.sync_ok(&pod).await;
    let status = rig.status(&pod).await;
    let counts: Vec<_> = status.containers.iter().map(|c| c.restart_count).collect();
    assert_eq!(counts, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_runtime_may_come_later() {
    let rig = Rig::new().await;
    // `Unknown` is how containerd answers while it starts.
    for code in [Code::Unavailable, Code::Unknown] {
        rig.fake.fail("Version", code);
        let start = Instant::now();
        let manager = rig.builder().build().await.unwrap();
        assert_eq!(manager.runtime_type(), "fake");
        assert_eq!(start.elapsed(), Duration::from_millis(100));
    }
    rig.fake.fail("Version", Code::Internal);
    let error = rig.builder().build().await.err().unwrap();
    assert!(error.to_string().contains("broken"), "{error}");
    let manager = rig.builder().build().await.unwrap();
    let named = rig.builder().runtime_type("mine").build().await.unwrap();
    assert_eq!(named.runtime_type(), "mine");
    let error = rig
        .builder()
        .runtime_type("")
        .container_log_links("logs")
        .build()
        .await;
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("runtime_type") && error.contains("container_log_links"),
        "{error}"
    );
    assert!(manager.pod_hints().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_started_again_meanwhile_is_waited_for() {
    let rig = Rig::new().await;
    let mut node = NodeSettings::default();
    node.root_dir = RootDir::new(rig.dir.path().join("root"));
    node.cgroup_driver = CgroupDriver::Cgroupfs { root: "/".into() };
    let build = || rig.builder().node(node.clone()).build();
    // It answers, with an error: after three tries the agent gives up.
    for code in [Code::Unknown, Code::Internal] {
        rig.fake.fail("RuntimeConfig", code);
        let start = Instant::now();
        let error = build().await.err().unwrap();
        assert!(error.to_string().contains("RuntimeConfig"), "{error}");
        assert_eq!(start.elapsed(), Duration::from_secs(4));
    }
    // It is away for a minute.
    rig.fake.fail("RuntimeConfig", Code::Unavailable);
    let (built, ()) = tokio::join!(build(), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        rig.fake.mend("RuntimeConfig");
    });
    built.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_container_looks_into_another() {
    let rig = Rig::new().await;
    let container = |name: &str| json!({ "name": name, "image": "i", "imagePullPolicy": "IfNotPresent" });
    let with = |debuggers: serde_json::Value| {
        let spec = json!({ "containers": [container("main")], "ephemeralContainers": debuggers });
        pod("p", spec)
    };
    let looks_into = |name: &str, target: &str| {
        let mut debugger = container(name);
        debugger["targetContainerName"] = target.into();
        debugger
    };
    rig.sync_ok(&with(json!([]))).await;
    rig.sync_ok(&with(json!([looks_into("debug", "main")]))).await;
    let namespaces = |name: &str| {
        let linux = rig.fake.config_of(name).linux.unwrap();
        linux.security_context.unwrap().namespace_options.unwrap()
    };
    let options = namespaces("debug");
    assert_eq!(options.pid(), v1::NamespaceMode::Target);
    assert!(
        rig.fake.container_ids().contains(&options.target_id),
        "{options:?}"
    );

    // There are no more actions for the first one.
    let result = rig
        .sync(&with(json!([
            looks_into("debug", "main"),
            looks_into("other", "nobody")
        ])))
        .await;
    let failure = result
        .results
        .iter()
        .find_map(|result| result.failure.clone())
        .unwrap();
    assert_eq!(failure.message, "unable to find target container nobody");
    assert_eq!(result.results.len(), 1);
}
