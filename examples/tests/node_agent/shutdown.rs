//! The host shuts down: the pods end in order, and then the host continues.

use std::fs;
use std::process::Stdio;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodExt;
use parking_lot::Mutex;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::standalone::{Agent, until};

const CONFIG: &str = "shutdownGracePeriod: 50s\nshutdownGracePeriodCriticalPods: 20s";
/// Takes a while to stop. As in the kubelet, a pod whose containers all end with 0 has succeeded, and does not show the shutdown.
const SLOW: &str = "trap 'sleep 3; exit 1' TERM; echo up; while true; do sleep 1 & wait $!; done";
const FAST: &str = "trap 'exit 1' TERM; echo up; while true; do sleep 1 & wait $!; done";

/// A node with an ordinary pod, which takes a while to stop, and a critical one.
async fn with_pods(cluster: &Cluster) -> [Pod; 2] {
    cluster.node_is_ready().await;
    let volumes = json!({"volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}]});
    cluster.create(&pod("ordinary", SLOW, volumes));
    let critical = json!({"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"});
    cluster.create(&pod("critical", FAST, critical));
    [cluster.ready("ordinary").await, cluster.ready("critical").await]
}

fn is_down(node: &Node) -> bool {
    let down = |condition: &NodeCondition| {
        let message = condition.message.as_deref().unwrap_or_default();
        condition.type_ == "Ready"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("KubeletNotReady")
            && message.contains("node is shutting down")
    };
    node.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(down)
}

/// The node reports that it is not ready, rejects pods, and ends the others in order.
async fn goes_down(cluster: &Cluster, pods: &[Pod; 2]) {
    cluster.node("is shutting down", is_down).await;
    cluster.event(NODE, "NodeShutdown", "Shutdown manager detected shutdown event").await;
    cluster.create(&pod("late", SERVER, json!({})));
    let late = cluster.pod("late", "is rejected", |pod| reason(pod) == Some("NodeShutdown")).await;
    let message = late.status.as_ref().and_then(|status| status.message.as_deref());
    assert_eq!(message, Some("Pod was rejected: Pod was rejected as the node is shutting down."));
    let mut ends = Vec::new();
    for pod in pods {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let ended =
            cluster.pod(name, "is terminated", |pod| reason(pod) == Some("Terminated") && end(pod).is_some());
        let ended = ended.await;
        let status = ended.status.as_ref().unwrap();
        assert_eq!(status.phase.as_deref(), Some("Failed"), "{status:?}");
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(status.message.as_deref(), Some(message), "{status:?}");
        ends.push(end(&ended).unwrap());
    }
    assert!(ends[0] <= ends[1], "the critical pod ended before the ordinary one: {ends:?}");
}

/// Nothing of the pods is mounted, and the shutdown is recorded.
fn is_tidy(cluster: &Cluster, pods: &[Pod; 2]) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    for pod in pods {
        let folder = cluster.path("root").join("pods").join(pod.uid_str());
        assert!(!mounts.contains(&*folder.to_string_lossy()), "{mounts}");
    }
    let state = fs::read_to_string(cluster.path("root/graceful_node_shutdown_state")).unwrap();
    assert!(state.contains("startTime") && !state.contains("0001-01-01"), "{state}");
}

fn reason(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.reason.as_deref()
}

/// When its container ended.
fn end(pod: &Pod) -> Option<Timestamp> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)
}

#[tokio::test]
async fn a_signal_ends_the_pods_in_order_and_then_the_agent() {
    let cluster = Cluster::on_processes().await;
    let mut command = cluster.command(CONFIG);
    command.env_remove("DBUS_SYSTEM_BUS_ADDRESS");
    if std::path::Path::new("/run/systemd/system").is_dir() {
        println!("SKIPPED: systemd reports the shutdowns of this host");
        return cluster.end().await;
    }
    let mut agent = Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    let pods = with_pods(&cluster).await;
    agent.signal(Signal::POWER);
    goes_down(&cluster, &pods).await;
    assert!(agent.ended().await.0.success());
    is_tidy(&cluster, &pods);
    cluster.end().await;
}

/// As much of logind as an agent needs.
struct Login {
    locks: Mutex<Vec<std::io::PipeReader>>,
    locked: mpsc::UnboundedSender<()>,
}

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Login {
    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> u64 {
        60_000_000
    }

    fn inhibit(&self, what: String, _who: String, _why: String, mode: String) -> zbus::OwnedFd {
        assert_eq!((what.as_str(), mode.as_str()), ("shutdown", "delay"));
        let (reader, writer) = std::io::pipe().unwrap();
        self.locks.lock().push(reader);
        self.locked.send(()).unwrap();
        std::os::fd::OwnedFd::from(writer).into()
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(
        emitter: &zbus::object_server::SignalEmitter<'_>,
        start: bool,
    ) -> zbus::Result<()>;
}

#[tokio::test]
async fn logind_waits_until_the_pods_have_ended_in_order() {
    let cluster = Cluster::on_processes().await;
    let address = format!("unix:path={}", cluster.path("bus").display());
    let daemon = tokio::process::Command::new("dbus-daemon")
        .args(["--session", "--nofork", "--print-address", "--address", &address])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let Ok(mut daemon) = daemon else {
        assert!(std::env::var_os("CI").is_none(), "there is no dbus-daemon");
        println!("SKIPPED: there is no dbus-daemon");
        return cluster.end().await;
    };
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap();
    let (locked, mut locks) = mpsc::unbounded_channel();
    let path = "/org/freedesktop/login1";
    let bus = zbus::connection::Builder::address(address.as_str());
    let bus = bus.serve_at(path, Login { locks: Mutex::default(), locked }).name("org.freedesktop.login1");
    let bus = bus.build().await.unwrap();

    let mut command = cluster.command(CONFIG);
    command.env("DBUS_SYSTEM_BUS_ADDRESS", &address);
    let mut agent = Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    let pods = with_pods(&cluster).await;
    locks.recv().await.unwrap();
    let served = bus.object_server().interface::<_, Login>(path).await.unwrap();
    Login::prepare_for_shutdown(served.signal_emitter(), true).await.unwrap();
    goes_down(&cluster, &pods).await;
    // The agent releases the lock: its pipe ends.
    let mut lock = served.get().await.locks.lock().pop().unwrap();
    let ended = tokio::task::spawn_blocking(move || std::io::Read::read(&mut lock, &mut [0]));
    assert_eq!(ended.await.unwrap().unwrap(), 0);
    is_tidy(&cluster, &pods);

    // The host does not shut down after all.
    Login::prepare_for_shutdown(served.signal_emitter(), false).await.unwrap();
    cluster.node_is_ready().await;
    until("it delays the next shutdown", async || locks.try_recv().ok()).await;
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    daemon.kill().await.unwrap();
    cluster.end().await;
}
