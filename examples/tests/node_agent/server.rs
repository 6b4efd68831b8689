//! The node's server, by `kubectl`: logs, exec, attach, port-forward, cp and debug, over SPDY and WebSocket, on processes
//! and on containerd.

use std::path::Path;
use std::process::{Output, Stdio};

use kubelet_testing::Containerd;
use kubelet_testing::api_server::find_kubectl;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::time::timeout;

use super::cluster::{Cluster, NODE};
use super::on_containerd::remove_cgroups;
use super::pods::{IMAGE, pod};
use super::{python_client, usage};
use crate::standalone::{Agent, GUARD, until};

/// The protocols of `kubectl`: WebSocket, and SPDY as older ones speak it.
const PROTOCOLS: [&str; 2] = ["true", "false"];

/// Repeats its input in its output.
const ECHO: &str = "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; trap 'exit 0' TERM; echo two >&2; sleep 0.3; echo one; echo three; while read line; do echo got $line; done; \
                    while true; do sleep 1 & wait $!; done";

#[tokio::test]
async fn kubectl_reaches_into_processes() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let cluster = Cluster::secure_on_processes().await;
    // All pods are on the host: each test of the machine has ports of its own.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                drop(tokio::io::copy(&mut from, &mut to).await);
            });
        }
    });
    everything(&cluster, &kubectl, port, None, None).await;
    echo.abort();
    cluster.end().await;
}

#[tokio::test]
async fn kubectl_reaches_into_containers() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::secure_on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let cgroups = format!("/kubelet-testing-server-{}", std::process::id());
    everything(&cluster, &kubectl, 7070, Some("nc -ll -p 7070 -e cat"), Some(&cgroups)).await;
    cluster.end().await;
    remove_cgroups(&cgroups);
}

/// An echo server listens on the port of the pod, or is started there by this command. Pods have cgroups below `cgroups`.
async fn everything(
    cluster: &Cluster,
    kubectl: &Path,
    port: u16,
    listen: Option<&str>,
    cgroups: Option<&str>,
) {
    let mut command = cluster.command("");
    command.arg("--kubeconfig").arg(cluster.path("kubeconfig"));
    if let Some(root) = cgroups {
        command.args(["--cgroups-per-qos=true", "--cgroup-root", root]);
    }
    let mut agent = Agent::spawn(&mut command);
    cluster.node_is_ready().await;
    let mut talks = pod("talks", ECHO, json!({}));
    let spec = talks.spec.as_mut().unwrap();
    spec.host_network = Some(false);
    spec.containers[0].stdin = Some(true);
    cluster.create(&talks);
    cluster.create(&pod("crashes", "echo run; sleep 1; exit 3", json!({})));
    cluster.ready("talks").await;
    usage::begin(cluster).await;

    logs(cluster, kubectl).await;
    for websockets in PROTOCOLS {
        let client = Client { cluster, kubectl, websockets };
        client.exec().await;
        client.terminal().await;
        client.copy().await;
        client.attach().await;
        client.port_forward(port, listen).await;
    }
    python(cluster, kubectl, port, cgroups.is_some()).await;
    raw(cluster, kubectl).await;
    usage::check(cluster, kubectl, "talks", cgroups.is_some()).await;
    debug(cluster, kubectl).await;
    for name in ["talks", "crashes"] {
        cluster.kubectl(kubectl, &["delete", "pod", name, "--timeout=100s", "--grace-period=1"]).await;
    }
    end(&mut agent).await;
}

/// The official Python client, which sends an input as one message.
async fn python(cluster: &Cluster, kubectl: &Path, port: u16, on_containerd: bool) {
    if !python_client::is_there().await {
        return;
    }
    // A process has no terminal, but a command in it may.
    let terminal = if on_containerd { python_client::TYPED } else { "" };
    if on_containerd {
        cluster.create(&python_client::typed());
        cluster.ready(terminal).await;
    }
    let said = python_client::talk(cluster, "talks", terminal, port).await;
    if on_containerd {
        cluster.kubectl(kubectl, &["delete", "pod", terminal, "--timeout=100s", "--grace-period=1"]).await;
    }
    let refused = said.lines().find(|line| line.starts_with("one message of 40 MiB")).unwrap();
    // Clients of the older protocol talk to the runtime: containerd closes the connection its own way.
    let by_us = !on_containerd || said.contains("v5.channel.k8s.io");
    assert!(!by_us || refused.contains("close 1009"), "{said}");
}

async fn end(agent: &mut Agent) {
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
}

async fn logs(cluster: &Cluster, kubectl: &Path) {
    let ask = async |args: &[&str]| cluster.kubectl(kubectl, args).await;
    let all = async || Some(ask(&["logs", "talks"]).await).filter(|all| all.contains("three"));
    let all = until("the log of talks", all).await;
    for line in ["one", "two", "three"] {
        assert!(all.contains(line), "{all}");
    }
    assert_eq!(ask(&["logs", "talks", "--tail=1", "-c", "main"]).await, "three");
    assert_eq!(ask(&["logs", "talks", "--since=1h", "--tail=1"]).await, "three");
    let timed = ask(&["logs", "talks", "--timestamps", "--tail=1"]).await;
    assert!(timed.starts_with("20") && timed.ends_with("Z three"), "{timed}");
    assert_eq!(ask(&["logs", "talks", "--limit-bytes=2"]).await.len(), 2);

    // A log is followed until the container has ended, and does not end with the first instance's file.
    let followed = cluster.kubectl(kubectl, &["logs", "-f", "crashes"]).await;
    assert_eq!(followed, "run");
    let previous = async || {
        let mut command = cluster.kubectl_command(kubectl, &["logs", "crashes", "--previous"]);
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        (output.status.success() && output.stdout == b"run\n").then_some(())
    };
    until("the log of the previous instance", previous).await;
    let refused = cluster.kubectl_command(kubectl, &["logs", "talks", "--previous"]).output().await.unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("previous terminated container \"main\" in pod \"talks\" not found"), "{error}");
}

/// A `kubectl` that speaks one of the protocols.
struct Client<'a> {
    cluster: &'a Cluster,
    kubectl: &'a Path,
    websockets: &'static str,
}

impl Client<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.cluster.kubectl_command(self.kubectl, args);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", self.websockets);
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", self.websockets);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end, with this input.
    async fn run(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feed = async move {
            drop(stdin.write_all(input).await);
        };
        let both = async { tokio::join!(child.wait_with_output(), feed).0 };
        timeout(GUARD, both).await.unwrap_or_else(|_| panic!("kubectl {args:?} hangs")).unwrap()
    }

    async fn exec(&self) {
        let script = "echo out; echo err >&2; exit 3";
        let output = self.run(&["exec", "talks", "--", "sh", "-c", script], b"").await;
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(output.stdout, b"out\n");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("err\n"), "{output:?}");
        let missing = self.run(&["exec", "talks", "--", "/no/such"], b"").await;
        assert!(!missing.status.success(), "{missing:?}");

        let sent: Vec<u8> = (0..1_000_000_u32).map(|place| (place * 7 / 3) as u8).collect();
        let output = self.run(&["exec", "-i", "talks", "--", "cat"], &sent).await;
        assert!(output.status.success(), "{:?}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());
    }

    /// A terminal with its size, and the exit code of the shell in it.
    async fn terminal(&self) {
        let (pty, terminal) = pty_process::open().unwrap();
        pty.resize(pty_process::Size::new(41, 123)).unwrap();
        let mut command = pty_process::Command::new(self.kubectl);
        command = command.arg("--kubeconfig").arg(self.cluster.path("admin"));
        command = command.arg("--cache-dir").arg(self.cluster.path("cache"));
        command = command.args(["exec", "-it", "talks", "--", "sh"]).env("HOME", self.cluster.dir.path());
        command = command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", self.websockets).kill_on_drop(true);
        let mut child = command.spawn(terminal).unwrap();
        let (from, mut to) = pty.into_split();
        let (mut from, mut seen) = (BufReader::new(from), String::new());
        let mut ask = async |to: &mut pty_process::OwnedWritePty, typed: &str, expected: &str| {
            to.write_all(typed.as_bytes()).await.unwrap();
            let read = async {
                let mut piece = [0; 1024];
                while !seen.contains(expected) {
                    let count = from.read(&mut piece).await.unwrap_or(0);
                    assert!(count > 0, "the terminal ended: {seen}");
                    seen.push_str(&String::from_utf8_lossy(&piece[..count]));
                }
            };
            timeout(GUARD, read).await.unwrap_or_else(|_| panic!("no {expected:?}: {seen}"));
        };
        // The size comes with a message of its own, so it is asked for until it is there.
        ask(&mut to, "until stty size | grep '41 123'; do sleep 0.1; done\r", "41 123\r\n").await;
        to.resize(pty_process::Size::new(50, 132)).unwrap();
        ask(&mut to, "until stty size | grep '50 132'; do sleep 0.1; done\r", "50 132\r\n").await;
        to.write_all(b"exit 4\r").await.unwrap();
        let drained = async {
            let mut rest = Vec::new();
            // The other end of a terminal that is closed is an error.
            drop(from.read_to_end(&mut rest).await);
        };
        let (status, ()) = timeout(GUARD, async { tokio::join!(child.wait(), drained) }).await.unwrap();
        assert_eq!(status.unwrap().code(), Some(4));
    }

    async fn copy(&self) {
        // Processes share the folders of the host.
        let there = format!("/tmp/kubelet-cp-{}", std::process::id());
        let (up, down) = (self.cluster.path("up"), self.cluster.path("down"));
        let content: Vec<u8> =
            (0..python_client::stream_mib() << 20).map(|place| (place * 11 / 7) as u8).collect();
        std::fs::write(&up, &content).unwrap();
        self.copy_up_and_down(&up, &there, &down).await;
        assert!(std::fs::read(&down).unwrap() == content);
        for file in [&up, &down] {
            std::fs::remove_file(file).unwrap();
        }

        std::fs::create_dir(&up).unwrap();
        let files = python_client::stream_files();
        let text = |number: usize| format!("{number}").repeat(number % 1000);
        for number in 0..files {
            std::fs::write(up.join(format!("file-{number}")), text(number)).unwrap();
        }
        self.copy_up_and_down(&up, &there, &down).await;
        assert_eq!(std::fs::read_dir(&down).unwrap().count(), files);
        for number in 0..files {
            assert!(std::fs::read(down.join(format!("file-{number}"))).unwrap() == text(number).as_bytes());
        }
        for folder in [&up, &down] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }

    /// Copies a file or a folder into the pod and back.
    async fn copy_up_and_down(&self, up: &Path, there: &str, down: &Path) {
        let target = format!("talks:{there}");
        let begin = std::time::Instant::now();
        for (from, to) in [(up.to_str().unwrap(), &*target), (&*target, down.to_str().unwrap())] {
            let output = self.run(&["cp", from, to], b"").await;
            assert!(output.status.success(), "{:?}", String::from_utf8_lossy(&output.stderr));
        }
        #[expect(clippy::print_stdout, reason = "how long it took is shown, not judged")]
        {
            println!("kubectl cp up and down, WebSocket {}: {:?}", self.websockets, begin.elapsed());
        }
        self.run(&["exec", "talks", "--", "rm", "-r", there], b"").await;
    }

    /// What is typed reaches the container, and what it says comes back and is in its log.
    async fn attach(&self) {
        let mut child = self.command(&["attach", "-i", "talks"]).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let word = format!("hello-{}", self.websockets);
        let talk = async {
            stdin.write_all(format!("{word}\n").as_bytes()).await.unwrap();
            while let Some(line) = lines.next_line().await.unwrap() {
                if line == format!("got {word}") {
                    return;
                }
            }
            panic!("attach ended");
        };
        timeout(GUARD, talk).await.expect("attach hangs");
        child.kill().await.unwrap();
        let logged = async || {
            let log = self.cluster.kubectl(self.kubectl, &["logs", "talks"]).await;
            log.contains(&format!("got {word}")).then_some(())
        };
        until("the line in the log", logged).await;
    }

    async fn port_forward(&self, port: u16, listen: Option<&str>) {
        // `kubectl` ends with the first connection that is refused, so the server must listen before. Only the first one can.
        let listener =
            listen.map(|listen| self.command(&["exec", "talks", "--", "sh", "-c", listen]).spawn().unwrap());
        if listener.is_some() {
            let listens = format!("until netstat -ltn | grep -q :{port}; do sleep 0.1; done");
            let output = self.run(&["exec", "talks", "--", "sh", "-c", &listens], b"").await;
            assert!(output.status.success(), "{output:?}");
        }
        let mut child = self.command(&["port-forward", "talks", &format!(":{port}")]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = timeout(GUARD, lines.next_line()).await.unwrap().unwrap().expect("port-forward ended");
        let local = first.split(' ').nth(2).unwrap().to_owned();
        let ask = async |word: &str| {
            let mut stream = TcpStream::connect(&local).await.ok()?;
            stream.write_all(word.as_bytes()).await.ok()?;
            let mut answer = vec![0; word.len()];
            timeout(GUARD, stream.read_exact(&mut answer)).await.ok()?.ok()?;
            (answer == word.as_bytes()).then_some(())
        };
        for number in 0..50 {
            let word = format!("{number}").repeat(1000);
            ask(&word).await.unwrap_or_else(|| panic!("no echo of connection {number}"));
        }
        child.kill().await.unwrap();
        drop(listener);
    }
}

/// The endpoints, through `nodes/proxy`.
async fn raw(cluster: &Cluster, kubectl: &Path) {
    let ask = async |path: &str| {
        cluster.kubectl(kubectl, &["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/{path}")]).await
    };
    assert_eq!(ask("healthz").await, "ok");
    let pods: Value = serde_json::from_str(&ask("pods").await).unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 2, "{pods}");
    let running: Value = serde_json::from_str(&ask("runningpods/").await).unwrap();
    assert!(running["items"].as_array().unwrap().iter().any(|pod| pod["metadata"]["name"] == "talks"));
    let configz: Value = serde_json::from_str(&ask("configz").await).unwrap();
    assert_eq!(configz["kubeletconfig"]["healthzBindAddress"], "127.0.0.1", "{configz}");
    let metrics = ask("metrics").await;
    for name in ["kubelet_running_pods", "kubelet_http_requests_total", "kubelet_node_name"] {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    assert!(ask("flagz").await.contains(&format!("hostname-override={NODE}")));
    assert!(ask("statusz").await.contains("Binary version: v1.36"));
    assert!(ask("metrics/slis").await.contains("kubernetes_healthcheck"));
}

async fn debug(cluster: &Cluster, kubectl: &Path) {
    let image = format!("--image={IMAGE}");
    let args = [
        "debug",
        "talks",
        &image,
        "-c",
        "debugger",
        "--image-pull-policy=IfNotPresent",
        "--",
        "echo",
        "debugging",
    ];
    cluster.kubectl(kubectl, &args).await;
    let logged = async || {
        let args = ["logs", "talks", "-c", "debugger"];
        let output = cluster.kubectl_command(kubectl, &args).stdin(Stdio::null()).output().await.unwrap();
        (output.stdout == b"debugging\n").then_some(())
    };
    until("the log of the debugger", logged).await;
}
