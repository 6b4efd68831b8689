//! `kubectl logs`, `exec`, `get --raw` and `debug`. Without `kubectl` the tests print `SKIPPED` and pass.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use futures::future::join;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kubelet_apiserver::{User, find_kubectl};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::Cluster;
use super::fake::{FakeNode, whole};
use super::metrics::node_with_usage;

/// How long a `kubectl` may take before it counts as hung.
const GUARD: Duration = Duration::from_secs(120);

/// A cluster with a port for HTTPS, and a folder for the files of `kubectl`.
struct Kubectl {
    cluster: Cluster,
    program: PathBuf,
    folder: tempfile::TempDir,
    served: JoinHandle<std::io::Result<()>>,
}

impl Kubectl {
    /// `None` if this machine has no `kubectl`.
    async fn start() -> Option<Kubectl> {
        let program = find_kubectl().unwrap()?;
        let cluster = Cluster::start().await;
        let folder = tempfile::tempdir().unwrap();
        // `kubectl get --raw` does not keep the token in the path, and sends the other one only over TLS.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = cluster
            .server
            .kubeconfig_tls(listener.local_addr().unwrap(), User::admin());
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let (server, stop) = (cluster.server.clone(), cluster.shutdown.clone());
        let served = tokio::spawn(async move { server.serve_tls(listener, stop).await });
        Some(Kubectl {
            cluster,
            program,
            folder,
            served,
        })
    }

    async fn output(&self, args: &[&str], input: &str) -> Output {
        let folder = self.folder.path();
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .arg("--cache-dir")
            .arg(folder.join("cache"))
            .args(args)
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let write = async move {
            // A `kubectl` that fails leaves its input.
            let _ = stdin.write_all(input.as_bytes()).await;
        };
        let output = tokio::time::timeout(GUARD, join(write, child.wait_with_output()));
        output.await.expect("kubectl hangs").1.unwrap()
    }

    /// Runs a `kubectl` that must succeed, and returns its standard output.
    async fn run(&self, args: &[&str]) -> String {
        let output = self.output(args, "").await;
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {args:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn end(self) {
        self.cluster.end().await;
        self.served.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn reads_logs_and_adds_a_debug_container() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let server = &kubectl.cluster.server;
    let node = FakeNode::start(server, |request| async move {
        whole(200, &format!("{}\n", request.uri()))
    });
    let node = node.await;
    kubectl.cluster.register_fake(&node);

    let log = kubectl.run(&["logs", "web", "--tail=5", "--timestamps"]).await;
    assert_eq!(
        log,
        "/containerLogs/default/web/main?tailLines=5&timestamps=true\n"
    );
    let log = kubectl
        .run(&["logs", "-f", "pair", "-c", "b", "--previous"])
        .await;
    assert_eq!(log, "/containerLogs/default/pair/b?follow=true&previous=true\n");
    let raw = kubectl.run(&["get", "--raw", "/api/v1/nodes/one/proxy/healthz?verbose=true"]);
    assert_eq!(raw.await, "/healthz?verbose=true\n");

    let debug = ["debug", "web", "--image=busybox:1.36", "-c", "look"];
    kubectl.run(&debug).await;
    let pod: Pod = server.get("default", "web").unwrap().unwrap();
    let added = pod.spec.unwrap().ephemeral_containers.unwrap();
    assert_eq!(added[0].name, "look");
    kubectl.end().await;
}

#[tokio::test]
async fn shows_the_usage_of_nodes_and_pods() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let node = node_with_usage(&kubectl.cluster).await;
    let mut registered: Node = kubectl.cluster.server.get("", "one").unwrap().unwrap();
    let status = registered.status.as_mut().unwrap();
    status.allocatable = serde_json::from_value(json!({"cpu": "2", "memory": "1000Mi"})).unwrap();
    kubectl.cluster.server.replace_status(&registered).unwrap();
    for (args, rows) in [
        (&["top", "node"][..], &["one 200m 10% 500Mi 50%"][..]),
        (&["top", "pod"], &["pair 100m 2Mi", "web 100m 1Mi"]),
        (
            &["top", "pod", "-A", "--containers"],
            &[
                "default pair a 50m 1Mi",
                "default pair b 50m 1Mi",
                "default web main 100m 1Mi",
            ],
        ),
        (&["top", "pod", "web"], &["web 100m 1Mi"]),
        (&["top", "pod", "-l", "app=pair"], &["pair 100m 2Mi"]),
    ] {
        let output = kubectl.run(&[args, &["--no-headers"]].concat()).await;
        let found: Vec<String> = output
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(found, rows, "{args:?}");
    }
    drop(node);
    kubectl.end().await;
}

/// The channels of `v5.channel.k8s.io`.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const ERROR: u8 = 3;
const CLOSE: u8 = 255;

/// Plays `cat` that fails in the end.
async fn cat(request: Request<Incoming>) {
    let stream = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        match &*message.into_data() {
            [CLOSE, STDIN] => break,
            [STDIN, input @ ..] => {
                let output = [&[STDOUT], input].concat();
                socket.send(Message::binary(output)).await.unwrap();
            }
            _ => {}
        }
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NonZeroExitCode",
        "message": "command terminated with non-zero exit code",
        "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
    });
    let failure = [&[ERROR], status.to_string().as_bytes()].concat();
    socket.send(Message::binary(failure)).await.unwrap();
    let end = CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    };
    // The client may have closed the connection already.
    let _ = socket.close(Some(end)).await;
}

#[tokio::test]
async fn runs_a_command_with_input_output_and_exit_code() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let node = FakeNode::start(&kubectl.cluster.server, |request| async move {
        if request
            .headers()
            .get(UPGRADE)
            .is_none_or(|protocol| protocol != "websocket")
        {
            return whole(400, "this test needs a kubectl that speaks WebSocket");
        }
        assert_eq!(
            request.uri(),
            "/exec/default/pair/b?command=cat&error=1&input=1&output=1"
        );
        let key = derive_accept_key(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
        tokio::spawn(cat(request));
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, key)
            .header(SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io")
            .body(whole(200, "").into_body())
            .unwrap()
    });
    let node = node.await;
    kubectl.cluster.register_fake(&node);
    let input: String = (0..20_000).map(|line| format!("line {line}\n")).collect();
    let output = kubectl
        .output(&["exec", "-i", "pair", "-c", "b", "--", "cat"], &input)
        .await;
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{complaint}");
    assert!(output.stdout == input.as_bytes(), "{} bytes", output.stdout.len());
    kubectl.end().await;
}
