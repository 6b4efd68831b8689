//! What `kubectl` shows of the statuses that the manager sends: `get`, `describe` and `wait` agree with the real state.
//! Any recent version works. Without `kubectl` the test prints `SKIPPED` and passes.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus, SandboxState, SandboxStatus};
use kubelet_core::{ContainerId, Event, EventRecorder, EventType, PodExt, PodStatusInput, PodStatusReporter};
use kubelet_status::{
    ApiServerEvents, ApiServerSink, EventBroadcaster, EventRecorderHandle, NodeFacts, StatusManager,
    StatusManagerConfig, StatusManagerHandle,
};
use kubelet_testing::api_server::find_kubectl;
use kubelet_testing::{ApiServer, User, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// How long a `kubectl` may take before it counts as hung.
const GUARD: Duration = Duration::from_secs(120);

/// An API server on a port, and a node that reports to it.
struct Cluster {
    server: ApiServer,
    kubectl: PathBuf,
    statuses: StatusManagerHandle,
    events: EventRecorderHandle,
    folder: tempfile::TempDir,
    shutdown: CancellationToken,
    tasks: tokio::task::JoinSet<()>,
}

impl Cluster {
    /// `None` if this machine has no `kubectl`.
    async fn start() -> Option<Self> {
        let kubectl = find_kubectl().unwrap()?;
        let server = ApiServer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = server.kubeconfig(listener.local_addr().unwrap(), User::admin());
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let (shutdown, mut tasks) = (CancellationToken::new(), tokio::task::JoinSet::new());
        let (serving, ends) = (server.clone(), shutdown.clone());
        tasks.spawn(async move { serving.serve(listener, ends).await.unwrap() });

        let mut config = StatusManagerConfig::default();
        config.node = NodeFacts::default();
        config.node.host_ips = vec!["10.99.0.1".parse().unwrap()];
        let manager = StatusManager::with_config(ApiServerSink::new(server.client()), config);
        let events = EventBroadcaster::new(ApiServerEvents::new(server.client()), "one");
        let cluster = (manager.handle(), events.handle());
        tasks.spawn(manager.run(shutdown.clone()));
        tasks.spawn(events.run(shutdown.clone()));
        Some(Self {
            server,
            kubectl,
            statuses: cluster.0,
            events: cluster.1,
            folder,
            shutdown,
            tasks,
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        let folder = self.folder.path();
        command
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .arg("--cache-dir")
            .arg(folder.join("cache"));
        command
            .args(args)
            .env("HOME", folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Whether it succeeded, and what it printed.
    async fn kubectl(&self, args: &[&str]) -> (bool, String) {
        let output = tokio::time::timeout(GUARD, self.command(args).output());
        let output = output.await.expect("kubectl hangs").expect("kubectl starts");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.success(),
            text(output.stdout) + &text(output.stderr),
        )
    }

    async fn says(&self, args: &[&str], words: &[&str]) {
        let (done, text) = self.kubectl(args).await;
        assert!(done, "kubectl {args:?}: {text}");
        // However many spaces there are between two words.
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(flat.contains(word), "kubectl {args:?}: no {word:?} in {text}");
        }
    }

    /// What the runtime says becomes the pod's status, in the server.
    async fn report(&self, pod: &Arc<Pod>, runtime: &PodStatus, terminal: bool) {
        let mut input = PodStatusInput::new(pod, runtime);
        input.terminal = terminal;
        let status = self.statuses.generate(&input);
        self.statuses.set_pod_status(pod, status);
        let (uid, name) = (pod.uid(), pod.key().name);
        let differs = || {
            let there: Option<Pod> = self.server.get("default", &name).unwrap();
            json!(there.unwrap().status) != json!(self.statuses.pod_status(&uid).as_deref())
        };
        eventually!(differs(), |differs| !differs);
    }
}

fn runtime(pod: &Pod, containers: &[(&str, ContainerState, i32)]) -> PodStatus {
    let now = Timestamp::now();
    let mut status = PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    status.ips = vec!["10.88.0.7".to_owned()];
    status.sandboxes = vec![SandboxStatus {
        id: "s".to_owned(),
        state: SandboxState::Ready,
        attempt: 0,
        created_at: Some(now),
        ips: status.ips.clone(),
        network_reported: true,
        host_network: false,
        runtime_handler: String::new(),
    }];
    for (name, state, exit_code) in containers {
        let id = ContainerId::new("containerd", format!("id-of-{name}"));
        let mut container = ContainerStatus::new(id, *name, *state);
        container.created_at = Some(now);
        container.started_at = Some(now);
        container.exit_code = *exit_code;
        if *state == ContainerState::Exited {
            container.finished_at = Some(now);
            container.reason = if *exit_code == 0 { "Completed" } else { "Error" }.to_owned();
        }
        container.image = "busybox:1.36".to_owned();
        container.sandbox_id = "s".to_owned();
        status.containers.push(container);
    }
    status
}

#[tokio::test]
async fn get_describe_and_wait_agree_with_the_truth() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let pod: Value = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"nodeName": "one",
        "restartPolicy": "Never", "containers": [{"name": "a", "image": "busybox:1.36"}, {"name": "b", "image": "busybox:1.36"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pod = Arc::new(cluster.server.create(&pod).unwrap());
    cluster.says(&["get", "pod", "web"], &["web 0/2 Pending 0"]).await;

    cluster.report(&pod, &runtime(&pod, &[]), false).await;
    cluster
        .says(&["get", "pod", "web"], &["web 0/2 ContainerCreating 0"])
        .await;

    // It waits while the pod becomes ready.
    let waiting = cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=100s", "pod/web"]);
    let becoming = async {
        let one = runtime(
            &pod,
            &[
                ("a", ContainerState::Running, 0),
                ("b", ContainerState::Created, 0),
            ],
        );
        cluster.report(&pod, &one, false).await;
        let (ready, text) = cluster
            .kubectl(&["wait", "--for=condition=Ready", "--timeout=1s", "pod/web"])
            .await;
        assert!(!ready, "one of two containers runs: {text}");
        cluster.says(&["get", "pod", "web"], &["web 1/2"]).await;
        let both = [
            ("a", ContainerState::Running, 0),
            ("b", ContainerState::Running, 0),
        ];
        cluster.report(&pod, &runtime(&pod, &both), false).await;
    };
    let ((ready, text), ()) = tokio::join!(waiting, becoming);
    assert!(ready && text.contains("pod/web condition met"), "{text}");
    cluster
        .says(
            &["get", "pod", "web", "-o", "wide"],
            &["web 2/2 Running 0", "10.88.0.7 one"],
        )
        .await;

    cluster.events.record(Event {
        pod: &pod,
        field_path: Some("spec.containers{b}".to_owned()),
        event_type: EventType::Warning,
        reason: "Unhealthy",
        message: "Readiness probe failed: no".to_owned(),
    });
    let b = ContainerId::new("containerd", "id-of-b");
    cluster.statuses.set_container_readiness(&pod.uid(), &b, false);
    cluster
        .says(
            &["wait", "--for=condition=Ready=false", "--timeout=100s", "pod/web"],
            &["condition met"],
        )
        .await;
    let events = || {
        cluster
            .server
            .list::<k8s_openapi::api::core::v1::Event>()
            .unwrap()
    };
    eventually!(events().len(), |events| *events == 1);
    let truth = [
        "Status: Running",
        "IP: 10.88.0.7",
        "Container ID: containerd://id-of-b",
        "Ready False",
        "ContainersReady False",
        "PodScheduled True",
        "QoS Class: BestEffort",
        "Readiness probe failed: no",
    ];
    cluster.says(&["describe", "pod", "web"], &truth).await;

    // To delete it is to wait until the node is done with it.
    let deleting = cluster.kubectl(&["delete", "pod", "web", "--timeout=100s"]);
    let going = async {
        let is_going = |pod: &Option<Pod>| pod.as_ref().is_some_and(|pod| pod.is_deleting());
        let there = eventually!(cluster.server.get::<Pod>("default", "web").unwrap(), |pod| {
            is_going(pod)
        });
        let there = Arc::new(there.unwrap());
        cluster.statuses.observe_pod(&there);
        cluster
            .says(&["get", "pod", "web"], &["web 1/2 Terminating 0"])
            .await;
        let ended = [("a", ContainerState::Exited, 3), ("b", ContainerState::Exited, 0)];
        cluster.report(&there, &runtime(&there, &ended), true).await;
        cluster
            .says(&["describe", "pod", "web"], &["Reason: Error Exit Code: 3"])
            .await;
        cluster.statuses.terminate_pod(&there);
    };
    let ((deleted, text), ()) = tokio::join!(deleting, going);
    assert!(deleted, "{text}");
    assert_eq!(cluster.server.get::<Pod>("default", "web").unwrap(), None);

    // One that ended by itself shows how.
    let job: Value = json!({"metadata": {"name": "job", "namespace": "default"}, "spec": {"nodeName": "one",
        "restartPolicy": "Never", "containers": [{"name": "a", "image": "busybox:1.36"}]}});
    let job: Pod = serde_json::from_value(job).unwrap();
    let job = Arc::new(cluster.server.create(&job).unwrap());
    cluster
        .report(&job, &runtime(&job, &[("a", ContainerState::Exited, 3)]), true)
        .await;
    cluster.says(&["get", "pod", "job"], &["job 0/1 Error 0"]).await;
    cluster
        .says(
            &["describe", "pod", "job"],
            &["Status: Failed", "Reason: Error Exit Code: 3"],
        )
        .await;
    cluster
        .says(
            &[
                "wait",
                "--for=jsonpath={.status.phase}=Failed",
                "--timeout=100s",
                "pod/job",
            ],
            &["condition met"],
        )
        .await;
    cluster.shutdown.cancel();
    cluster.tasks.join_all().await;
}
