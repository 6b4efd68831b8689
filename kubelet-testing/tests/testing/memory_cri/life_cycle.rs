//! Sandboxes and containers from the first call to the last, and the errors on the way, as with containerd 2.1.9.

use kubelet_core::PodUid;
use kubelet_cri::{Code, RuntimeService, v1};
use kubelet_testing::Run;
use kubelet_testing::memory_cri::{ExecReply, Latency};
use tokio::time::{Duration, advance};

use super::rig::*;
use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};

#[tokio::test(start_paused = true)]
async fn a_sandbox_lives_and_is_gone() {
    let runtime = instant();
    let id = run(&runtime, "web", 0).await.unwrap();
    assert_eq!(id.len(), 64);
    let status = sandbox_status(&runtime, &id[..10]).await.unwrap();
    assert_eq!(
        (status.id.as_str(), status.state()),
        (id.as_str(), v1::PodSandboxState::SandboxReady)
    );
    assert_eq!(status.metadata, sandbox_config("web", 0).metadata);
    assert_eq!(status.network.unwrap().ip, "10.88.0.2");
    assert_eq!(status.created_at, 1_000_000_000_000_000);

    for _ in 0..2 {
        stop_sandbox(&runtime, &id).await.unwrap();
        let status = sandbox_status(&runtime, &id).await.unwrap();
        assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
        assert_eq!(status.network, Some(v1::PodSandboxNetworkStatus::default()));
    }
    for _ in 0..2 {
        remove_sandbox(&runtime, &id).await.unwrap();
    }
    let words = "an error occurred when try to find sandbox: not found";
    assert_refused(sandbox_status(&runtime, &id).await, Code::NotFound, words);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_the_hosts_network_has_no_address() {
    let runtime = builder()
        .latency(Latency::none())
        .pod_cidr([10, 1, 0, 0], 30)
        .pod_cidr(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0), 64)
        .build();
    let mut config = sandbox_config("host", 0);
    let options = v1::NamespaceOption {
        network: v1::NamespaceMode::Node as i32,
        ..Default::default()
    };
    config.linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(options.clone()),
            ..Default::default()
        }),
        ..Default::default()
    });
    let status = sandbox_status(&runtime, &run_config(&runtime, config).await.unwrap()).await;
    let status = status.unwrap();
    assert_eq!(status.network, Some(v1::PodSandboxNetworkStatus::default()));
    assert_eq!(status.linux.unwrap().namespaces.unwrap().options, Some(options));

    let id = run(&runtime, "two", 0).await.unwrap();
    let network = sandbox_status(&runtime, &id).await.unwrap().network.unwrap();
    assert_eq!(
        (network.ip.as_str(), network.additional_ips[0].ip.as_str()),
        ("10.1.0.2", "fd00::2")
    );
    // That was the only address; the failed sandbox holds none.
    for _ in 0..2 {
        let words = "no IP addresses available in range set: 10.1.0.1-10.1.0.2";
        assert_refused(run(&runtime, "three", 0).await, Code::Unknown, words);
    }
    remove_sandbox(&runtime, &id).await.unwrap();
    run(&runtime, "three", 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_container_lives_and_is_gone() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    advance(Duration::from_secs(1)).await;
    let id = create(&runtime, &sandbox, "main", 0).await.unwrap();
    assert_eq!(fate(&runtime, &id).await, (ContainerCreated, 0, String::new()));
    // It never ran, so there is nothing to stop.
    stop(&runtime, &id, 1).await.unwrap();
    assert_eq!(fate(&runtime, &id).await.0, ContainerCreated);

    advance(Duration::from_secs(1)).await;
    start(&runtime, &id).await.unwrap();
    advance(Duration::from_secs(1)).await;
    let running = status(&runtime, &id).await.unwrap();
    assert_eq!(running.state(), ContainerRunning);
    assert_eq!(running.started_at - running.created_at, 1_000_000_000);
    assert_eq!(running.image.unwrap().image, IMAGE);
    assert!(running.image_ref.starts_with("docker.io/library/busybox@sha256:"));
    assert!(running.image_id.starts_with("sha256:"));

    for _ in 0..2 {
        stop(&runtime, &id, 10).await.unwrap();
        assert_eq!(fate(&runtime, &id).await, (ContainerExited, 143, "Error".into()));
    }
    let exited = status(&runtime, &id).await.unwrap();
    assert_eq!(exited.finished_at - exited.started_at, 1_000_000_000);
    for _ in 0..2 {
        remove(&runtime, &id).await.unwrap();
    }
    assert_refused(status(&runtime, &id).await, Code::NotFound, "not found");
    runtime.assert_consistent();
    runtime.calls().assert_exactly([
        "RunPodSandbox web#0",
        "CreateContainer web/main#0",
        "StopContainer web/main#0",
        "StartContainer web/main#0",
        "StopContainer web/main#0",
        "StopContainer web/main#0",
        "RemoveContainer web/main#0",
        "RemoveContainer",
    ]);
    let start = &runtime.calls().matching("StartContainer")[0];
    assert_eq!(
        start.request::<v1::StartContainerRequest>().unwrap().container_id,
        id
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_in_which_words() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let unknown = "nope";

    assert_refused(
        run(&runtime, "web", 0).await,
        Code::FailedPrecondition,
        &format!(
            "failed to reserve sandbox name \"web_default_uid-of-web_0\": name \"web_default_uid-of-web_0\" is reserved for {sandbox:?}"
        ),
    );
    assert_refused(
        run_config(&runtime, v1::PodSandboxConfig::default()).await,
        Code::Unknown,
        "sandbox config must include metadata",
    );
    let request = v1::RunPodSandboxRequest {
        config: Some(sandbox_config("handler", 0)),
        runtime_handler: "kata".to_owned(),
    };
    assert_refused(
        runtime.run_pod_sandbox(request).await,
        Code::Unknown,
        ": no runtime for \"kata\" is configured",
    );
    assert_refused(
        sandbox_status(&runtime, "").await,
        Code::Unknown,
        "prefix can't be empty",
    );

    let main = create(&runtime, &sandbox, "main", 0).await.unwrap();
    let container = "an error occurred when try to find container \"nope\": not found";
    assert_refused(
        create(&runtime, &sandbox, "main", 0).await,
        Code::FailedPrecondition,
        "failed to reserve container name \"main_web_default_uid-of-web_0\"; check if another CreateContainer request is in progress",
    );
    assert_refused(
        create(&runtime, unknown, "main", 0).await,
        Code::NotFound,
        "failed to find sandbox id \"nope\": not found",
    );
    let mut no_image = container_config("other", 0);
    no_image.image.as_mut().unwrap().image = "docker.io/library/nope:1".to_owned();
    assert_refused(
        create_config(&runtime, &sandbox, no_image).await,
        Code::NotFound,
        "failed to check if this is a checkpoint image: failed to resolve image \"docker.io/library/nope:1\": not found",
    );
    assert_refused(
        create_config(&runtime, &sandbox, v1::ContainerConfig::default()).await,
        Code::Unknown,
        "container config must include metadata",
    );

    assert_refused(
        exec(&runtime, &main, &["true"], 0).await,
        Code::Unknown,
        "failed to exec in container: container is in CONTAINER_CREATED state",
    );
    start(&runtime, &main).await.unwrap();
    assert_refused(
        start(&runtime, &main).await,
        Code::Unknown,
        &format!(
            "failed to set starting state for container {main:?}: container is in CONTAINER_RUNNING state"
        ),
    );
    assert_refused(start(&runtime, unknown).await, Code::NotFound, container);
    assert_refused(status(&runtime, unknown).await, Code::NotFound, container);
    assert_refused(
        exec(&runtime, unknown, &["true"], 0).await,
        Code::NotFound,
        "failed to exec in container: failed to find container \"nope\" in store: not found",
    );
    assert_refused(
        exec(&runtime, &main, &[], 0).await,
        Code::Unknown,
        "args must not be empty",
    );

    stop(&runtime, &main, 0).await.unwrap();
    assert_eq!(
        fate(&runtime, &main).await,
        (ContainerExited, 137, "Error".into())
    );
    assert_refused(
        start(&runtime, &main).await,
        Code::Unknown,
        "container is in CONTAINER_EXITED state",
    );
    assert_refused(
        exec(&runtime, &main, &["true"], 0).await,
        Code::Unknown,
        "container is in CONTAINER_EXITED state",
    );
    let reopen = |id: &str| {
        runtime.reopen_container_log(v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        })
    };
    assert_refused(reopen(&main).await, Code::Unknown, "container is not running");
    assert_refused(reopen(unknown).await, Code::NotFound, container);
    let update = |id: &str| {
        runtime.update_container_resources(v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            ..Default::default()
        })
    };
    assert_refused(
        update(unknown).await,
        Code::NotFound,
        "failed to find container: not found",
    );
    update(&main).await.unwrap();

    let side = create(&runtime, &sandbox, "side", 0).await.unwrap();
    stop_sandbox(&runtime, &sandbox).await.unwrap();
    assert_eq!(fate(&runtime, &side).await.0, ContainerCreated);
    create(&runtime, &sandbox, "late", 0).await.unwrap();
    let words = format!("sandbox container {sandbox:?} is not running");
    assert_refused(start(&runtime, &side).await, Code::Unknown, &words);
    let failed = status(&runtime, &side).await.unwrap();
    assert_eq!(
        (
            failed.state(),
            failed.exit_code,
            failed.reason.as_str(),
            failed.message
        ),
        (ContainerExited, 128, "StartError", words)
    );
    assert_eq!((failed.started_at, failed.finished_at > 0), (0, true));

    // Stopping or removing missing things succeeds.
    stop(&runtime, unknown, 1).await.unwrap();
    remove(&runtime, unknown).await.unwrap();
    stop_sandbox(&runtime, unknown).await.unwrap();
    remove_sandbox(&runtime, unknown).await.unwrap();
    runtime.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn names_are_free_again_when_their_owner_is_gone_or_never_came_to_be() {
    let runtime = with_image(builder().build());
    // Two at once: one of them has the name first.
    let (one, other) = tokio::join!(run(&runtime, "web", 0), run(&runtime, "web", 0));
    assert_refused(other, Code::FailedPrecondition, "is reserved for");
    let sandbox = one.unwrap();
    let (one, other) = tokio::join!(
        create(&runtime, &sandbox, "main", 0),
        create(&runtime, &sandbox, "main", 0)
    );
    assert_refused(other, Code::FailedPrecondition, "is reserved for");
    let main = one.unwrap();
    let (one, other) = tokio::join!(start(&runtime, &main), start(&runtime, &main));
    assert_refused(other, Code::Unknown, "container is already in starting state");
    one.unwrap();

    remove(&runtime, &main).await.unwrap();
    create(&runtime, &sandbox, "main", 0).await.unwrap();
    remove_sandbox(&runtime, &sandbox).await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(1), run(&runtime, "web", 0)).await;
    assert!(given_up.is_err());
    assert_eq!(runtime.sandboxes(), []);
    run(&runtime, "web", 0).await.unwrap();
    runtime.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_or_fails_has_failed() {
    let runtime = with_image(builder().build());
    runtime.script(
        "main",
        [
            Run::forever().start_hangs(),
            Run::fails_to_start(
                kubelet_cri::verbs::ErrorClass::Permanent,
                "exec: \"nope\": executable file not found",
            ),
            Run::exits(0),
            Run::exits(7),
            Run::oom_killed(),
        ],
    );
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let hanging = create(&runtime, &sandbox, "main", 0).await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_secs(120), start(&runtime, &hanging)).await;
    assert!(given_up.is_err());
    assert_eq!(
        fate(&runtime, &hanging).await,
        (ContainerExited, 128, "StartError".into())
    );

    let failing = create(&runtime, &sandbox, "main", 1).await.unwrap();
    assert_refused(
        start(&runtime, &failing).await,
        Code::InvalidArgument,
        "failed to create containerd task: exec: \"nope\"",
    );
    assert_eq!(
        fate(&runtime, &failing).await,
        (ContainerExited, 128, "StartError".into())
    );

    for (attempt, code, reason) in [(2, 0, "Completed"), (3, 7, "Error"), (4, 137, "OOMKilled")] {
        let id = started(&runtime, &sandbox, "main", attempt).await;
        assert_eq!(fate(&runtime, &id).await, (ContainerExited, code, reason.into()));
    }
    let tally = runtime.tally(&uid("web"), "main");
    assert_eq!((tally.tries, tally.starts, tally.most_at_once), (5, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_killed_when_it_is_removed() {
    let runtime = instant();
    runtime.script("stubborn", [Run::forever().ignores_stop()]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = started(&runtime, &sandbox, "stubborn", 0).await;
    remove(&runtime, &id).await.unwrap();
    assert_eq!(runtime.running(), [""; 0]);

    let id = started(&runtime, &sandbox, "stubborn", 1).await;
    stop_sandbox(&runtime, &sandbox).await.unwrap();
    assert_eq!(fate(&runtime, &id).await, (ContainerExited, 137, "Error".into()));

    let sandbox = run(&runtime, "web", 1).await.unwrap();
    started(&runtime, &sandbox, "stubborn", 0).await;
    remove_sandbox(&runtime, &sandbox).await.unwrap();
    assert_eq!(runtime.containers().len(), 1);
    assert_eq!(runtime.tally(&uid("web"), "stubborn").starts, 3);
    runtime.assert_consistent();
}

#[tokio::test(start_paused = true)]
async fn containers_are_scripted_by_image_command_or_pod() {
    let runtime = instant();
    runtime.script_image("busybox:1.36", [Run::exits(1)]);
    runtime.script_where(
        |planned| planned.container.command == ["sleep"] && planned.pod_name() == "web",
        [Run::exits(2)],
    );
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = started(&runtime, &sandbox, "main", 0).await;
    assert_eq!(fate(&runtime, &id).await.1, 1);
    let mut config = container_config("main", 1);
    config.command = vec!["sleep".to_owned()];
    let id = create_config(&runtime, &sandbox, config).await.unwrap();
    start(&runtime, &id).await.unwrap();
    assert_eq!(fate(&runtime, &id).await.1, 2);
}

#[tokio::test(start_paused = true)]
async fn containers_and_sandboxes_end_from_outside() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let main = started(&runtime, &sandbox, "main", 0).await;
    assert_eq!(runtime.end(&uid("web"), "main", 9), 1);
    assert_eq!(runtime.end(&uid("web"), "main", 9), 0);
    assert_eq!(runtime.end(&PodUid::from("other"), "main", 9), 0);
    assert_eq!(fate(&runtime, &main).await, (ContainerExited, 9, "Error".into()));

    let side = started(&runtime, &sandbox, "side", 0).await;
    assert_eq!(runtime.end_sandbox(&uid("web")), 1);
    // It shared the sandbox's processes.
    assert_eq!(
        fate(&runtime, &side).await,
        (ContainerExited, 137, "Error".into())
    );
    let status = sandbox_status(&runtime, &sandbox).await.unwrap();
    assert_eq!(status.state(), v1::PodSandboxState::SandboxNotready);
    // The network is there until the sandbox is stopped.
    assert_eq!(status.network.unwrap().ip, "10.88.0.2");

    let mut config = sandbox_config("own", 0);
    config.linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                pid: v1::NamespaceMode::Container as i32,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    });
    let sandbox = run_config(&runtime, config).await.unwrap();
    started(&runtime, &sandbox, "main", 0).await;
    runtime.end_sandbox(&uid("own"));
    assert_eq!(runtime.running(), ["own/main#0"]);
}

#[tokio::test(start_paused = true)]
async fn two_at_once_are_counted_and_named() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    started(&runtime, &sandbox, "main", 0).await;
    assert_eq!(runtime.violations(), [""; 0]);
    started(&runtime, &sandbox, "main", 1).await;
    let other = run(&runtime, "web", 1).await.unwrap();
    started(&runtime, &other, "side", 0).await;
    assert_eq!(
        runtime.violations(),
        [
            "web/main#1 runs beside others of its name: attempts 0, 1",
            "web#1 is ready beside another sandbox of its pod",
        ]
    );
    assert_eq!(runtime.tally(&uid("web"), "main").most_at_once, 2);
}

#[tokio::test(start_paused = true)]
async fn commands_answer_as_scripted() {
    let runtime = instant();
    runtime.script_exec(
        "main",
        [
            ExecReply::exits(1).stderr("not yet"),
            ExecReply::exits(0).stdout("ready\n"),
        ],
    );
    runtime.script_exec_where(|_, command| command[0] == "sleep", [ExecReply::hangs()]);
    runtime.script_exec_where(|_, command| command[0] == "nope", [ExecReply::no_such_program()]);
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let main = started(&runtime, &sandbox, "main", 0).await;
    let side = started(&runtime, &sandbox, "side", 0).await;
    assert_eq!(
        exec(&runtime, &side, &["true"], 0).await.unwrap(),
        v1::ExecSyncResponse::default()
    );
    for (code, stdout, stderr) in [(1, "", "not yet"), (0, "ready\n", ""), (0, "ready\n", "")] {
        let answer = exec(&runtime, &main, &["probe"], 1).await.unwrap();
        assert_eq!(
            (
                answer.exit_code,
                answer.stdout.as_slice(),
                answer.stderr.as_slice()
            ),
            (code, stdout.as_bytes(), stderr.as_bytes())
        );
    }
    assert_refused(
        exec(&runtime, &main, &["sleep"], 1).await,
        Code::DeadlineExceeded,
        "failed to exec in container: timeout 1s exceeded: context deadline exceeded",
    );
    assert_refused(
        exec(&runtime, &main, &["nope"], 0).await,
        Code::Unknown,
        "exec: \"nope\": executable file not found in $PATH: unknown",
    );

    let (killed, ()) = tokio::join!(exec(&runtime, &main, &["sleep"], 0), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        runtime.end(&uid("web"), "main", 0);
    });
    assert_eq!(killed.unwrap().exit_code, 137);
}

#[tokio::test(start_paused = true)]
async fn resources_are_kept_and_merged() {
    let runtime = instant();
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let mut config = container_config("main", 0);
    let resources = v1::LinuxContainerResources {
        cpu_shares: 2,
        memory_limit_in_bytes: 1000,
        ..Default::default()
    };
    config.linux = Some(v1::LinuxContainerConfig {
        resources: Some(resources.clone()),
        security_context: None,
    });
    let id = create_config(&runtime, &sandbox, config).await.unwrap();
    let request = v1::UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(v1::LinuxContainerResources {
            cpu_shares: 512,
            cpuset_cpus: "0-1".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    runtime.update_container_resources(request).await.unwrap();
    let expected = v1::LinuxContainerResources {
        cpu_shares: 512,
        cpuset_cpus: "0-1".to_owned(),
        ..resources
    };
    let shown = status(&runtime, &id).await.unwrap().resources.unwrap();
    assert_eq!(shown.linux, Some(expected));
}
