//! The runtime manager on a runtime in memory: streams, logs and stats of running pods; missing calls of old
//! runtimes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{self as api, Pod};
use kubelet_core::runtime::streaming::{
    ClientStreams, CommandKind, PortForwarder, RemoteCommand, StreamError, StreamErrorKind, StreamingRuntime,
    StreamingServer,
};
use kubelet_core::runtime::{ContainerLogs, PodStatus};
use kubelet_core::stats::RuntimeUsages;
use kubelet_core::{Clock, NodeRuntime, PodExt, PodKey, RootDir, Runtime, RuntimeReader};
use kubelet_cri::{Code, Error, v1};
use kubelet_kuberuntime::logs::{ContainerLogManager, LogRotatePolicy, PodLogOptions};
use kubelet_kuberuntime::{
    CgroupDriver, CriNodeRuntime, CriRuntime, CriRuntimeBuilder, NodeSettings, StreamOptions,
};
use kubelet_testing::memory_cri::{Call, ExecReply, Latency, MemoryCri, MemoryCriBuilder};
use kubelet_testing::{PodBuilder, Run};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const ALL: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

struct Rig {
    cri: MemoryCri,
    manager: CriRuntime,
    clock: Clock,
    _dir: TempDir,
}

impl Rig {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(change: impl FnOnce(MemoryCriBuilder) -> MemoryCriBuilder) -> Self {
        let clock = Clock::starting_at("2024-01-01T00:00:00Z".parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let builder = MemoryCri::builder(clock)
            .latency(Latency::none())
            .streaming_url("http://127.0.0.1:1")
            .record_looks()
            .write_logs_below(dir.path());
        let cri = change(builder).build();
        let manager = manager(&cri, clock, &dir, NodeSettings::default())
            .build()
            .await
            .unwrap();
        Self {
            cri,
            manager,
            clock,
            _dir: dir,
        }
    }

    async fn sync(&self, pod: &Arc<Pod>) -> Arc<PodStatus> {
        let status = match self.manager.pod(&pod.uid()).await.unwrap() {
            Some(listed) => self.manager.pod_status(&listed).await.unwrap(),
            None => Arc::new(PodStatus::empty(pod.uid(), pod.key(), Instant::now())),
        };
        let result = self.manager.sync_pod(pod, &status).await;
        assert!(result.is_ok(), "{:?}", result.summary());
        let listed = self.manager.pod(&pod.uid()).await.unwrap().unwrap();
        self.manager.pod_status(&listed).await.unwrap()
    }

    fn asked(&self, call: Call) -> usize {
        self.cri
            .calls()
            .all()
            .iter()
            .filter(|made| made.call == call)
            .count()
    }
}

fn manager(cri: &MemoryCri, clock: Clock, dir: &TempDir, mut node: NodeSettings) -> CriRuntimeBuilder {
    let services = Arc::new(cri.clone());
    node.root_dir = RootDir::new(dir.path().join("root"));
    node.pod_logs_dir = dir.path().join("logs");
    node.resolv_conf = None;
    CriRuntime::builder(services.clone(), services)
        .node(node)
        .clock(clock)
}

fn pod(name: &str) -> Arc<Pod> {
    let image = "docker.io/library/busybox:1.36";
    PodBuilder::new(name)
        .container("main", image, |container| container)
        .container("term", image, |container| {
            container.with(|container| container.tty = Some(true))
        })
        .container("once", image, |container| container)
        .restart_policy("Never")
        .build()
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

fn told<T: std::fmt::Debug>(result: Result<T, Error>) -> (Code, String) {
    let error = result.unwrap_err();
    (error.code(), error.message())
}

#[tokio::test(start_paused = true)]
async fn commands_run_in_running_containers_found_by_name() {
    let rig = Rig::new().await;
    rig.cri.script("once", [Run::exits(0).after(SECOND)]);
    let (pod, timeout) = (pod("web"), Duration::ZERO);
    rig.sync(&pod).await;
    let key = pod.key();
    rig.cri.script_exec(
        "main",
        [
            ExecReply::exits(3).stdout("out").stderr("err"),
            ExecReply::hangs(),
        ],
    );
    let command = words("do it");
    let output = rig
        .manager
        .run_in_container(&key, "main", &command, timeout)
        .await
        .unwrap();
    assert_eq!(
        (output.stdout, output.stderr, output.exit_code),
        (b"out".into(), b"err".into(), 3)
    );
    let late = rig
        .manager
        .run_in_container(&key, "main", &command, 2 * SECOND)
        .await;
    let message = "command timed out: \"do it\" timed out after 2s";
    assert_eq!(told(late), (Code::DeadlineExceeded, message.to_owned()));

    tokio::time::sleep(2 * SECOND).await;
    for container in ["once", "none"] {
        let result = rig
            .manager
            .run_in_container(&key, container, &command, timeout)
            .await;
        assert_eq!(
            told(result),
            (Code::NotFound, format!("container not found ({container:?})"))
        );
    }
    let elsewhere = PodKey::new("elsewhere", "web");
    let result = rig
        .manager
        .run_in_container(&elsewhere, "main", &command, timeout)
        .await;
    assert_eq!(
        told(result),
        (Code::NotFound, "container not found (\"main\")".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn the_runtime_tells_where_it_serves_streams() {
    let rig = Rig::new().await;
    rig.cri.script("once", [Run::exits(0)]);
    let web = pod("web");
    rig.sync(&web).await;
    let (manager, key) = (&rig.manager, web.key());
    let url = manager
        .exec_url(&key, "main", &words("sh"), StreamOptions { tty: true, ..ALL })
        .await
        .unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/exec/"), "{url}");
    let url = manager.attach_url(&web, "term", ALL).await.unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/attach/"), "{url}");
    manager.attach_url(&web, "main", ALL).await.unwrap();
    let url = manager.port_forward_url(&key, &[80, 8080]).await.unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/portforward/"), "{url}");

    let calls = rig.cri.calls().all();
    let exec: Vec<_> = calls
        .iter()
        .filter_map(|call| call.request::<v1::ExecRequest>())
        .collect();
    assert!(
        exec[0].tty && exec[0].stdin && exec[0].stdout && !exec[0].stderr,
        "{exec:?}"
    );
    let attach: Vec<_> = calls
        .iter()
        .filter_map(|call| call.request::<v1::AttachRequest>())
        .collect();
    assert!(attach[0].tty && !attach[0].stderr, "as the spec says: {attach:?}");
    assert!(!attach[1].tty && attach[1].stderr, "{attach:?}");
    let forward: Vec<_> = calls
        .iter()
        .filter_map(|call| call.request::<v1::PortForwardRequest>())
        .collect();
    assert_eq!(forward[0].port, [80, 8080]);

    let not_found = |message: &str| (Code::NotFound, message.to_owned());
    let exec = manager.exec_url(&key, "once", &words("sh"), ALL).await;
    assert_eq!(told(exec), not_found("container not found (\"once\")"));
    let attach = manager.attach_url(&web, "none", ALL).await;
    assert_eq!(
        told(attach),
        not_found("container none not found in pod web_default")
    );
    let forward = manager
        .port_forward_url(&PodKey::new("default", "none"), &[80])
        .await;
    assert_eq!(told(forward), not_found("pod not found (\"none_default\")"));
    let nothing = manager
        .exec_url(&key, "main", &words("sh"), StreamOptions::default())
        .await;
    let message = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(told(nothing), (Code::InvalidArgument, message.to_owned()));
}

/// The calls of the node's server.
#[tokio::test(start_paused = true)]
async fn the_nodes_server_gets_the_kubelets_messages() {
    let rig = Rig::new().await;
    rig.cri.script("once", [Run::exits(0)]);
    let web = pod("web");
    rig.sync(&web).await;
    let (manager, key): (&dyn StreamingRuntime, _) = (&rig.manager, web.key());
    rig.cri.script_exec(
        "main",
        [
            ExecReply::exits(0).stdout("out").stderr("err"),
            ExecReply::exits(2).stdout("out").stderr("bad"),
            ExecReply::hangs(),
            ExecReply::no_such_program(),
        ],
    );
    let run = |container: &'static str| {
        let (key, command) = (key.clone(), words("ls -x"));
        async move {
            manager
                .run_in_container(&key, container, &command, 2 * SECOND)
                .await
        }
    };
    let error = |kind, message: &str| Err::<Vec<u8>, _>(StreamError::new(kind, message));
    assert_eq!(run("main").await.unwrap(), b"outerr");
    let exited = "command 'ls -x' exited with 2: bad";
    assert_eq!(run("main").await, error(StreamErrorKind::Other, exited));
    let late = "command timed out: \"ls -x\" timed out after 2s";
    assert_eq!(run("main").await, error(StreamErrorKind::DeadlineExceeded, late));
    let failed = run("main").await.unwrap_err();
    assert_eq!(failed.kind, StreamErrorKind::Other);
    let text = "rpc error: code = Unknown desc = failed to exec in container: failed to start exec";
    assert!(failed.message.starts_with(text), "{failed}");
    // The kubelet answers these with the status 500.
    let missing = "container not found (\"none\")";
    assert_eq!(run("none").await, error(StreamErrorKind::Other, missing));
    let sh = words("sh");
    let url = manager.exec_url(&key, "main", &sh, ALL).await.unwrap();
    assert!(url.starts_with("http://127.0.0.1:1/exec/"), "{url}");
    let nothing = manager
        .exec_url(&key, "main", &sh, StreamOptions::default())
        .await;
    let message = "you must specify at least 1 of stdin, stdout, stderr";
    assert_eq!(
        nothing,
        Err(StreamError::new(StreamErrorKind::InvalidArgument, message))
    );
    let attach = manager.attach_url(&web, "once", ALL).await.unwrap_err();
    assert_eq!(
        attach,
        StreamError::other("container once not found in pod web_default")
    );
    let none = PodKey::new("default", "none");
    let forward = manager.port_forward_url(&none, &[80]).await.unwrap_err();
    assert_eq!(forward, StreamError::other("pod not found (\"none_default\")"));

    let location = std::path::Path::new("/var/lib/kubelet/checkpoints/x.tar");
    let checkpoint = manager.checkpoint_container(&key, "main", location, SECOND).await;
    let checkpoint = checkpoint.unwrap_err();
    assert_eq!(checkpoint.kind, StreamErrorKind::Unimplemented);
    assert!(
        checkpoint
            .message
            .starts_with("rpc error: code = Unimplemented desc = "),
        "{checkpoint}"
    );
    let checkpoint = manager.checkpoint_container(&key, "none", location, SECOND).await;
    assert_eq!(checkpoint, Err(StreamError::other("container none not found")));
}

/// The logs by the containers' names, as the node's server reads them.
#[tokio::test(start_paused = true)]
async fn logs_are_found_by_the_containers_name() {
    let rig = Rig::new().await;
    rig.cri
        .script("main", [Run::exits(0).after(10 * SECOND).prints("one\ntwo")]);
    let pod = pod("web");
    let status = rig.sync(&pod).await;
    let id = status.container("main").unwrap().id.to_string();
    let status: api::PodStatus = serde_json::from_value(serde_json::json!({ "containerStatuses": [{
        "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": id, "state": { "running": {} },
    }] }))
    .unwrap();
    let logs: &dyn ContainerLogs = &rig.manager;
    let options = PodLogOptions {
        follow: true,
        ..Default::default()
    };
    let text = logs.container_logs(&pod, &status, "main", options).await.unwrap();
    let text: Vec<Vec<u8>> = text.try_collect().await.unwrap();
    assert_eq!(text.concat(), b"one\ntwo\n");
    let previous = PodLogOptions {
        previous: true,
        ..Default::default()
    };
    let error = logs
        .container_logs(&pod, &status, "main", previous)
        .await
        .err()
        .unwrap();
    let message = "previous terminated container \"main\" in pod \"web\" not found";
    assert_eq!(error, StreamError::other(message));
}

/// Streams of the runtime in memory.
#[tokio::test(start_paused = true)]
async fn a_streaming_server_runs_scripted_commands() {
    #[derive(Default)]
    struct Offers {
        commands: Mutex<Vec<Box<dyn RemoteCommand>>>,
        forwarders: Mutex<Vec<Box<dyn PortForwarder>>>,
    }
    impl StreamingServer for Offers {
        fn offer_command(
            &self,
            kind: CommandKind,
            _streams: StreamOptions,
            command: Box<dyn RemoteCommand>,
        ) -> Result<String, StreamError> {
            self.commands.lock().unwrap().push(command);
            Ok(format!("http://here/{kind:?}"))
        }

        fn offer_port_forward(
            &self,
            ports: &[u16],
            forwarder: Box<dyn PortForwarder>,
        ) -> Result<String, StreamError> {
            self.forwarders.lock().unwrap().push(forwarder);
            Ok(format!("http://here/{ports:?}"))
        }
    }
    let offers = Arc::new(Offers::default());
    let rig = Rig::with(|builder| builder.streaming(offers.clone())).await;
    rig.cri.script("once", [Run::exits(0).after(5 * SECOND)]);
    rig.cri
        .script_exec("main", [ExecReply::exits(3).stdout("out").stderr("err")]);
    let web = pod("web");
    rig.sync(&web).await;
    let url = rig
        .manager
        .exec_url(&web.key(), "main", &words("sh"), ALL)
        .await
        .unwrap();
    assert_eq!(url, "http://here/Exec");
    let (mut stdout, theirs) = tokio::io::duplex(64);
    let mut streams = ClientStreams::default();
    streams.stdout = Some(Box::new(theirs));
    let command = offers.commands.lock().unwrap().pop().unwrap();
    assert_eq!(command.run(streams).await, Ok(3));
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "out");

    let url = rig.manager.attach_url(&web, "once", ALL).await.unwrap();
    assert_eq!(url, "http://here/Attach");
    let attached = offers.commands.lock().unwrap().pop().unwrap();
    let at = Instant::now();
    assert_eq!(attached.run(ClientStreams::default()).await, Ok(0));
    assert_eq!(at.elapsed().as_secs(), 5);

    let url = rig.manager.port_forward_url(&web.key(), &[80]).await.unwrap();
    assert_eq!(url, "http://here/[80]");
    let forwarder = offers.forwarders.lock().unwrap().pop().unwrap();
    let mut port = forwarder.connect(80).await.unwrap();
    port.write_all(b"ping").await.unwrap();
    port.shutdown().await.unwrap();
    let mut pong = String::new();
    port.read_to_string(&mut pong).await.unwrap();
    assert_eq!(pong, "ping");
}

#[tokio::test(start_paused = true)]
async fn logs_are_found_by_the_containers_id_and_followed_over_rotations() {
    let rig = Rig::new().await;
    let mut run = Run::exits(0).after(60 * SECOND);
    for second in 0..50 {
        run = run.prints_after(second * SECOND, format!("line {second}"));
    }
    rig.cri.script("main", [run]);
    let pod = pod("web");
    let status = rig.sync(&pod).await;
    let policy = LogRotatePolicy {
        max_size: Some(1),
        max_files: 10,
        ..Default::default()
    };
    let manager = ContainerLogManager::new(Arc::new(rig.cri.clone()), policy)
        .unwrap()
        .clock(rig.clock);
    let shutdown = CancellationToken::new();
    let rotating = tokio::spawn(manager.run(shutdown.clone()));

    let id = &status.container("main").unwrap().id;
    let options = PodLogOptions {
        follow: true,
        ..Default::default()
    };
    let chunks = rig.manager.container_logs(id, options).await.unwrap();
    let chunks: Vec<_> = chunks.try_collect().await.unwrap();
    let text: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
    let expected: String = (0..50).map(|second| format!("line {second}\n")).collect();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
    assert!(rig.asked(Call::ReopenContainerLog) >= 4);
    shutdown.cancel();
    rotating.await.unwrap();

    let gone = kubelet_core::ContainerId::new("memory", "none");
    let error = rig
        .manager
        .container_logs(&gone, PodLogOptions::default())
        .await
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "unable to retrieve container logs for memory://none"
    );
}

#[tokio::test(start_paused = true)]
async fn stats_of_what_runs_and_of_images() {
    let rig = Rig::new().await;
    rig.cri.script("main", [Run::forever().uses(250, 64 << 20)]);
    rig.cri.script("once", [Run::exits(0)]);
    let web = pod("web");
    rig.sync(&web).await;
    rig.sync(&pod("db")).await;
    tokio::time::sleep(10 * SECOND).await;
    let stats = rig.manager.pod_stats().await.unwrap();
    assert_eq!(stats.len(), 2);
    let of_web = stats.iter().find(|stats| stats.key == web.key()).unwrap();
    assert_eq!(of_web.uid, web.uid());
    let nano_cores = |cpu: &Option<v1::CpuUsage>| {
        cpu.as_ref()
            .and_then(|cpu| cpu.usage_nano_cores.as_ref())
            .map(|rate| rate.value)
    };
    assert!(
        nano_cores(&of_web.cpu) > Some(250_000_000),
        "with its other containers"
    );
    assert!(of_web.memory.is_some() && of_web.network.is_some() && of_web.processes == Some(3));
    let names: Vec<_> = of_web
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    assert_eq!(names, ["main", "term"], "what has ended uses nothing");
    let main = &of_web.containers[0];
    assert_eq!(
        main.memory
            .as_ref()
            .unwrap()
            .working_set_bytes
            .as_ref()
            .unwrap()
            .value,
        64 << 20
    );
    assert_eq!(nano_cores(&main.cpu), Some(250_000_000));
    assert!(main.writable_layer.is_some() && main.started_at.is_some());
    assert_eq!(rig.asked(Call::ListContainerStats), 0);

    let images = rig.manager.image_fs_info().await.unwrap();
    assert_eq!(images.image_filesystems.len(), 1);
    assert!(images.image_filesystems[0].used_bytes.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_usage_for_the_stats_of_the_node() {
    let rig = Rig::new().await;
    rig.cri.script("main", [Run::forever().uses(250, 64 << 20)]);
    let web = pod("web");
    rig.sync(&web).await;
    tokio::time::sleep(10 * SECOND).await;
    let usages: &dyn RuntimeUsages = &rig.manager;
    let list = usages.list().await.unwrap();
    let [sandbox] = &list.sandboxes[..] else {
        panic!("{list:?}")
    };
    assert_eq!(
        (&*sandbox.pod, &*sandbox.uid, sandbox.ready),
        ("web", web.uid().as_str(), true)
    );
    assert!(
        list.containers
            .iter()
            .all(|container| container.sandbox_id == sandbox.id)
    );
    let main = list
        .containers
        .iter()
        .find(|container| container.name == "main")
        .unwrap();
    assert!(main.running && main.created_at.is_some() && !main.image.is_empty());

    let containers = usages.container_usages().await.unwrap();
    let of_main = containers.iter().find(|usage| usage.id == main.id).unwrap();
    assert_eq!(of_main.cpu.as_ref().unwrap().usage_nano_cores, Some(250_000_000));
    assert_eq!(of_main.memory.as_ref().unwrap().working_set, Some(64 << 20));
    assert!(!of_main.writable_layer.as_ref().unwrap().mountpoint.is_empty());
    let pods = usages.pod_usages().await.unwrap().unwrap();
    assert_eq!(
        (&pods[0].sandbox_id, pods[0].containers.len()),
        (&sandbox.id, containers.len())
    );
    assert!(pods[0].network.is_some() && pods[0].processes.is_some());
    assert_eq!(usages.file_systems().await.unwrap().images.len(), 1);
    let described: Vec<String> = usages
        .metric_descriptors()
        .await
        .unwrap()
        .into_iter()
        .map(|metric| metric.name)
        .collect();
    let metrics = usages.metrics().await.unwrap();
    assert!(!metrics.is_empty() && metrics.iter().all(|metric| described.contains(&metric.name)));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_without_stats_of_sandboxes_is_asked_once_and_tells_of_containers() {
    let rig = Rig::new().await;
    let missing = || rig.cri.faults().on(Call::ListPodSandboxStats);
    missing().fails(Code::Unimplemented, "unknown method ListPodSandboxStats");
    rig.cri.script("main", [Run::forever().uses(250, 64 << 20)]);
    let web = pod("web");
    rig.sync(&web).await;
    for _ in 0..3 {
        let stats = rig.manager.pod_stats().await.unwrap();
        let [of_web] = &stats[..] else { panic!("{stats:?}") };
        assert_eq!(
            (&of_web.key, of_web.cpu.is_none(), of_web.network.is_none()),
            (&web.key(), true, true)
        );
        assert_eq!(of_web.containers.len(), 3);
        assert!(of_web.containers.iter().all(|container| container.cpu.is_some()));
    }
    assert_eq!(
        (
            rig.asked(Call::ListPodSandboxStats),
            rig.asked(Call::ListContainerStats)
        ),
        (1, 3)
    );

    // A call that fails does not count as missing.
    let rig = Rig::new().await;
    rig.cri
        .faults()
        .on(Call::ListPodSandboxStats)
        .first(1)
        .fails(Code::Unknown, "broken");
    assert_eq!(
        told(rig.manager.pod_stats().await),
        (Code::Unknown, "broken".to_owned())
    );
    rig.manager.pod_stats().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_cgroup_driver_is_the_runtimes_where_it_tells() {
    let cgroup_parent = async |driver: CgroupDriver, lacks: bool| {
        let rig = Rig::with(|builder| builder.cgroup_driver(v1::CgroupDriver::Systemd)).await;
        if lacks {
            rig.cri
                .faults()
                .on(Call::RuntimeConfig)
                .fails(Code::Unimplemented, "unknown method RuntimeConfig");
        }
        let dir = tempfile::tempdir().unwrap();
        let mut node = NodeSettings::default();
        node.cgroup_driver = driver;
        let manager = manager(&rig.cri, rig.clock, &dir, node).build().await.unwrap();
        let rig = Rig {
            manager,
            _dir: dir,
            ..rig
        };
        rig.sync(&pod("web")).await;
        let calls = rig.cri.calls().all();
        let run = calls
            .iter()
            .find_map(|call| call.request::<v1::RunPodSandboxRequest>())
            .unwrap();
        let parent = run
            .config
            .as_ref()
            .unwrap()
            .linux
            .as_ref()
            .unwrap()
            .cgroup_parent
            .clone();
        (
            parent.split("pod").next().unwrap().to_owned() + &parent[parent.len() - 6..],
            rig.asked(Call::RuntimeConfig),
        )
    };
    let root = || String::from("/");
    let (parent, asked) = cgroup_parent(CgroupDriver::Cgroupfs { root: root() }, false).await;
    assert!(
        parent.ends_with(".slice") && asked == 1,
        "{parent}, asked {asked} times"
    );
    let (parent, asked) = cgroup_parent(CgroupDriver::Cgroupfs { root: root() }, true).await;
    assert!(
        !parent.ends_with(".slice") && asked == 1,
        "{parent}, asked {asked} times"
    );
    let asked_of_none = {
        let rig = Rig::new().await;
        rig.asked(Call::RuntimeConfig)
    };
    assert_eq!(asked_of_none, 0, "pods in no cgroups need no driver");
}

/// The id mapping in a pod's requests: first id and size. Sandbox, containers and mounts have the same.
fn told_ids(cri: &MemoryCri, pod: &str) -> Vec<(u32, u32)> {
    let mut told = Vec::new();
    let mut tell = |options: &Option<v1::NamespaceOption>, mounts: &[v1::Mount]| {
        let userns = options.as_ref().unwrap().userns_options.as_ref().unwrap();
        assert_eq!(userns.mode(), v1::NamespaceMode::Pod);
        assert_eq!(userns.uids, userns.gids);
        for mount in mounts {
            assert_eq!(
                (&mount.uid_mappings, &mount.gid_mappings),
                (&userns.uids, &userns.gids)
            );
        }
        let ids = userns.uids[0];
        assert_eq!((userns.uids.len(), ids.container_id), (1, 0));
        told.push((ids.host_id, ids.length));
    };
    for call in cri.calls().all().iter().filter(|call| call.about.pod == pod) {
        if let Some(request) = call.request::<v1::RunPodSandboxRequest>() {
            let linux = request.config.as_ref().unwrap().linux.as_ref().unwrap();
            tell(&linux.security_context.as_ref().unwrap().namespace_options, &[]);
        }
        if let Some(request) = call.request::<v1::CreateContainerRequest>() {
            let config = request.config.as_ref().unwrap();
            let linux = config.linux.as_ref().unwrap();
            assert!(!config.mounts.is_empty());
            tell(
                &linux.security_context.as_ref().unwrap().namespace_options,
                &config.mounts,
            );
        }
    }
    told
}

fn with_user_namespace(name: &str) -> Arc<Pod> {
    PodBuilder::new(name)
        .container("main", "docker.io/library/busybox:1.36", |container| container)
        .spec(|spec| spec.host_users = Some(false))
        .build()
}

#[tokio::test(start_paused = true)]
async fn each_user_namespace_has_ids_of_its_own_also_for_the_next_agent() {
    const IDS: u32 = 65_536;
    let mut rig = Rig::new().await;
    for name in ["a", "b"] {
        rig.sync(&with_user_namespace(name)).await;
    }
    assert_eq!(told_ids(&rig.cri, "a"), [(IDS, IDS); 2]);
    assert_eq!(told_ids(&rig.cri, "b"), [(2 * IDS, IDS); 2]);

    rig.manager = manager(&rig.cri, rig.clock, &rig._dir, NodeSettings::default())
        .build()
        .await
        .unwrap();
    rig.sync(&with_user_namespace("c")).await;
    assert_eq!(told_ids(&rig.cri, "c"), [(3 * IDS, IDS); 2]);
    let b = with_user_namespace("b");
    rig.cri.end(&b.uid(), "main", 1);
    rig.sync(&b).await;
    assert_eq!(told_ids(&rig.cri, "b"), [(2 * IDS, IDS); 3]);
}

fn of_size(cpu: &str, memory: &str) -> Arc<Pod> {
    let list = serde_json::json!({"cpu": cpu, "memory": memory});
    let resources = serde_json::json!({"requests": list, "limits": list});
    PodBuilder::new("a")
        .container("main", "docker.io/library/busybox:1.36", |container| {
            container.with(|main| main.resources = Some(serde_json::from_value(resources).unwrap()))
        })
        .spec(|spec| {
            let overhead = serde_json::json!({"cpu": "500m", "memory": "100"});
            spec.overhead = Some(serde_json::from_value(overhead).unwrap());
        })
        .build()
}

/// The resize calls since then: for the pod (shares, quota, memory), or for its container.
fn resizes(cri: &MemoryCri, since: usize) -> Vec<Option<[i64; 3]>> {
    let mut resizes = Vec::new();
    for call in &cri.calls().all()[since..] {
        if let Some(request) = call.request::<v1::UpdatePodSandboxResourcesRequest>() {
            let overhead = request.overhead.as_ref().unwrap();
            assert_eq!((overhead.cpu_shares, overhead.memory_limit_in_bytes), (512, 100));
            let pod = request.resources.as_ref().unwrap();
            assert_eq!(pod.cpu_period, 100_000);
            resizes.push(Some([pod.cpu_shares, pod.cpu_quota, pod.memory_limit_in_bytes]));
        }
        if call.call == Call::UpdateContainerResources {
            resizes.push(None);
        }
    }
    resizes
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_told_of_a_whole_pod_before_it_gets_more_and_after_it_gets_less() {
    let rig = Rig::new().await;
    rig.sync(&of_size("2", "1000")).await;
    let since = rig.cri.calls().all().len();
    rig.sync(&of_size("1", "3000")).await;
    let expected = [
        Some([2048, 200_000, 3000]),
        None,
        None,
        Some([1024, 200_000, 3000]),
        Some([1024, 100_000, 3000]),
    ];
    assert_eq!(resizes(&rig.cri, since), expected);

    let since = rig.cri.calls().all().len();
    rig.sync(&of_size("3", "3000")).await;
    assert_eq!(
        resizes(&rig.cri, since),
        [Some([1024, 300_000, 3000]), Some([3072, 300_000, 3000]), None]
    );
    let since = rig.cri.calls().all().len();
    rig.sync(&of_size("3", "3000")).await;
    assert_eq!(resizes(&rig.cri, since), []);
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_the_runtime_rejects_is_not_done_and_one_that_it_is_not_told_of_is() {
    let rig = Rig::new().await;
    let first = rig.sync(&of_size("1", "1000")).await;
    let faults = rig.cri.faults();
    faults
        .on(Call::UpdatePodSandboxResources)
        .fails(Code::Internal, "no");
    let resized = of_size("2", "1000");
    let result = rig.manager.sync_pod(&resized, &first).await;
    let failure = result.results[0].failure.clone().unwrap();
    assert!(
        failure.message.contains("(resource=cpu); resize rejected"),
        "{}",
        failure.message
    );
    assert_eq!(rig.asked(Call::UpdateContainerResources), 0);

    faults.clear();
    faults
        .on(Call::UpdatePodSandboxResources)
        .fails(Code::Unimplemented, "unknown method");
    rig.sync(&resized).await;
    rig.sync(&of_size("1", "1000")).await;
    assert_eq!(rig.asked(Call::UpdateContainerResources), 2);
    assert_eq!(
        rig.asked(Call::UpdatePodSandboxResources),
        2,
        "it is asked once more, and then no more"
    );
}

#[tokio::test]
async fn a_runtime_is_told_the_pod_cidrs() {
    let rig = Rig::new().await;
    let runtime = CriNodeRuntime::new(Arc::new(rig.cri.clone()), "memory");
    let cidrs = "10.0.1.0/24,fd00:0:0:1::/64";
    runtime.update_pod_cidr(cidrs).await.unwrap();
    let calls = rig.cri.calls().all();
    let told: Vec<_> = calls
        .iter()
        .filter_map(|call| {
            call.request::<v1::UpdateRuntimeConfigRequest>()?
                .runtime_config
                .as_ref()
        })
        .filter_map(|config| config.network_config.as_ref())
        .map(|network| network.pod_cidr.as_str())
        .collect();
    assert_eq!(told, [cidrs]);
}
