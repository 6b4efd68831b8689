//! `kubectl logs`, `get --raw` and `debug`. Without `kubectl` the test prints `SKIPPED` and passes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_apiserver::{User, find_kubectl};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::Cluster;
use super::fake::{FakeNode, whole};

/// How long a `kubectl` may take before it counts as hung.
const GUARD: Duration = Duration::from_secs(120);

async fn kubectl(program: &Path, folder: &Path, args: &[&str]) -> String {
    let child = Command::new(program)
        .arg("--kubeconfig")
        .arg(folder.join("kubeconfig"))
        .arg("--cache-dir")
        .arg(folder.join("cache"))
        .args(args)
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = tokio::time::timeout(GUARD, child.wait_with_output());
    let output = output.await.expect("kubectl hangs").unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {args:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn reads_logs_and_adds_a_debug_container() {
    let Some(program) = find_kubectl().unwrap() else {
        return;
    };
    let cluster = Cluster::start().await;
    let node = FakeNode::start(&cluster.server, |request| async move {
        whole(200, &format!("{}\n", request.uri()))
    });
    let node = node.await;
    cluster.register_fake(&node);
    let folder = tempfile::tempdir().unwrap();
    // `kubectl get --raw` does not keep the token in the path, and sends the other one only over TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubeconfig = cluster
        .server
        .kubeconfig_tls(listener.local_addr().unwrap(), User::admin());
    let (server, stop) = (cluster.server.clone(), cluster.shutdown.clone());
    let served = tokio::spawn(async move { server.serve_tls(listener, stop).await });
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
    let run = async |args: &[&str]| kubectl(&program, folder.path(), args).await;

    let log = run(&["logs", "web", "--tail=5", "--timestamps"]).await;
    assert_eq!(
        log,
        "/containerLogs/default/web/main?tailLines=5&timestamps=true\n"
    );
    let log = run(&["logs", "-f", "pair", "-c", "b", "--previous"]).await;
    assert_eq!(log, "/containerLogs/default/pair/b?follow=true&previous=true\n");
    let raw = run(&["get", "--raw", "/api/v1/nodes/one/proxy/healthz?verbose=true"]).await;
    assert_eq!(raw, "/healthz?verbose=true\n");

    run(&["debug", "web", "--image=busybox:1.36", "-c", "look"]).await;
    let pod: Pod = cluster.server.get("default", "web").unwrap().unwrap();
    let added = pod.spec.unwrap().ephemeral_containers.unwrap();
    assert_eq!(added[0].name, "look");
    cluster.end().await;
    served.await.unwrap().unwrap();
}
