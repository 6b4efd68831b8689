//! `kubectl` against the node. Without `kubectl` the test prints `SKIPPED` and passes.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use kubelet_testing::api_server::find_kubectl;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::{ApiAgent, Leftovers, kubeconfig, processes};
use crate::standalone::{GUARD, until};

const MANIFEST: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {text: "hello from a config map"}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: sesame}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: any
    command: ["sh", "-c", "cat etc/greeting/text; echo; echo word $WORD; while true; do sleep 1; done"]
    env:
    - {name: WORD, valueFrom: {secretKeyRef: {name: password, key: word}}}
    volumeMounts:
    - {name: greeting, mountPath: /etc/greeting}
  volumes:
  - {name: greeting, configMap: {name: greeting}}
"#;

struct Kubectl {
    program: PathBuf,
    root: PathBuf,
}

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig(&self.root))
            .arg("--cache-dir")
            .arg(self.root.join("cache"));
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    async fn output(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.spawn(args);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        timeout(GUARD, child.wait_with_output()).await.expect("kubectl hangs").unwrap()
    }

    /// Runs a `kubectl` that must succeed, and returns its standard output.
    async fn run(&self, args: &[&str], input: &str) -> String {
        let output = self.output(args, input).await;
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

async fn line(output: &mut (impl tokio::io::AsyncBufRead + Unpin), of: impl Fn(&str) -> bool) -> String {
    let mut lines = output.lines();
    loop {
        let next = timeout(GUARD, lines.next_line()).await.expect("no line").unwrap();
        let next = next.expect("kubectl ended");
        if of(&next) {
            return next;
        }
    }
}

#[tokio::test]
async fn kubectl_drives_the_node() {
    let Some(program) = find_kubectl().unwrap() else { return };
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("root");
    let _leftovers = Leftovers(root.join("processes"));
    let agent = ApiAgent::start(&root).await;
    let kubectl = Kubectl { program, root: root.clone() };
    let mut watching = kubectl.spawn(&["get", "pods", "-w", "--no-headers"]);
    let mut watched = BufReader::new(watching.stdout.take().unwrap());

    let applied = kubectl.run(&["apply", "-f", "-"], MANIFEST).await;
    assert_eq!(applied, "configmap/greeting created\nsecret/password created\npod/web created\n");
    line(&mut watched, |line| line.contains("1/1") && line.contains("Running")).await;
    let again = kubectl.run(&["apply", "-f", "-"], MANIFEST).await;
    assert!(
        again.contains("configmap/greeting unchanged\n") && again.contains("pod/web unchanged\n"),
        "{again}"
    );
    let described = kubectl.run(&["describe", "pod", "web"], "").await;
    for words in ["Node:             one/", "Status:           Running", "Started", "Container started"] {
        assert!(described.contains(words), "no {words:?} in {described}");
    }
    assert!(!described.contains("MissingClusterDNS"), "{described}");
    let used = kubectl.run(&["top", "node", "--no-headers"], "").await;
    assert!(used.starts_with("one "), "{used}");

    let mut following = kubectl.spawn(&["logs", "-f", "web"]);
    let mut log = BufReader::new(following.stdout.take().unwrap());
    line(&mut log, |line| line == "hello from a config map").await;
    line(&mut log, |line| line == "word sesame").await;

    let done = kubectl.output(&["exec", "-i", "web", "--", "sh"], "echo $WORD; exit 3").await;
    assert_eq!((done.status.code(), &*done.stdout), (Some(3), &b"sesame\n"[..]));
    forward(&kubectl).await;

    // What was applied, and the pod's process, are there after a kill and after a regular end.
    let pids = processes(&root.join("processes"));
    assert!(!pids.is_empty());
    assert!(!agent.end(Signal::KILL).await.success());
    let agent = ApiAgent::start(&root).await;
    assert_eq!(
        kubectl.run(&["get", "secret", "password", "-o", "jsonpath={.data.word}"], "").await,
        "c2VzYW1l"
    );
    assert!(agent.end(Signal::INT).await.success());
    let agent = ApiAgent::start(&root).await;
    until("the pod runs", async || {
        let phase = kubectl.run(&["get", "pod", "web", "-o", "jsonpath={.status.phase}"], "").await;
        (phase == "Running").then_some(())
    })
    .await;
    let path = "{.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl.run(&["get", "pod", "web", "-o", &format!("jsonpath={path}")], "").await, "0");
    assert!(pids.iter().any(|pid| processes(&root.join("processes")).contains(pid)));

    kubectl.run(&["delete", "pod", "web"], "").await;
    assert!(processes(&root.join("processes")).is_empty());
    assert_eq!(kubectl.run(&["get", "pods", "-o", "name"], "").await, "");
    assert!(agent.end(Signal::TERM).await.success());
    assert_private(&root);
}

/// Forwards a port of this test, which the pod shares.
async fn forward(kubectl: &Kubectl) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"from the pod").await.unwrap();
    });
    let mut forwarding = kubectl.spawn(&["port-forward", "pod/web", &format!(":{port}")]);
    let mut output = BufReader::new(forwarding.stdout.take().unwrap());
    let says = line(&mut output, |line| line.starts_with("Forwarding from 127.0.0.1:")).await;
    let local = says.trim_start_matches("Forwarding from ").split(" -> ").next().unwrap().to_owned();
    let mut received = String::new();
    TcpStream::connect(local).await.unwrap().read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "from the pod");
    serving.await.unwrap();
}

/// Nobody else can read what has secrets.
fn assert_private(root: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for (path, mode) in [(root.to_owned(), 0o700), (kubeconfig(root), 0o600), (root.join("api.redb"), 0o600)]
    {
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            mode,
            "{}",
            path.display()
        );
    }
}
