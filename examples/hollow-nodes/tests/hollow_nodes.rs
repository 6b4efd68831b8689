//! The program, run as users run it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use kubelet_testing::api_server::Verb;
use kubelet_testing::{ApiServer, User};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const PROGRAM: &str = env!("CARGO_BIN_EXE_hollow-nodes");

#[test]
fn the_pods_of_hollow_nodes_run() {
    // It ends by itself, should the pods never run.
    let arguments = ["--nodes", "3", "--pods", "2", "--output", "json", "--seconds", "120"];
    let mut hollow = Command::new(PROGRAM).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut seen = Vec::new();
    let all_run = json!({"nodes": 3, "pods": 6, "phases": {"Running": 6}});
    for line in BufReader::new(hollow.stdout.take().unwrap()).lines() {
        let shown: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let is_over = shown == all_run;
        seen.push(shown);
        if is_over {
            hollow.kill().unwrap();
            break;
        }
    }
    hollow.wait().unwrap();
    assert_eq!(seen.last(), Some(&all_run), "{seen:#?}");
}

#[test]
fn it_ends_in_good_order() {
    let arguments = ["--nodes", "2", "--pods", "1", "--output", "table", "--seconds", "3"];
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("NODES              2\nPODS               2\n"), "{text}");
}

/// A list of all pods each second, or a status of each node every ten, would be most of the load of a large API server.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_renew_their_leases_and_nobody_lists_all_pods() {
    let server = ApiServer::builder().record_reads().build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig(listener.local_addr().unwrap(), User::admin())).unwrap();
    let (serving, shutdown) = (server.clone(), CancellationToken::new());
    let stop = shutdown.clone();
    let serves = tokio::spawn(async move { serving.serve(listener, stop).await });
    let arguments = ["--api-server", "kubeconfig", "--nodes", "2", "--pods", "2", "--output", "json"];
    let mut hollow = tokio::process::Command::new(PROGRAM)
        .args(arguments)
        .env("KUBECONFIG", &kubeconfig)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = tokio::io::BufReader::new(hollow.stdout.take().unwrap()).lines();
    let leases = || {
        let calls = server.calls().all();
        calls.iter().filter(|call| call.resource == "leases" && call.status == Some(200)).count()
    };
    // A renewal of each node: at least ten lines have been shown before.
    while leases() < 2 {
        lines.next_line().await.unwrap().expect("it has ended");
    }
    let calls = server.calls().all();
    let lists = calls.iter().filter(|call| call.resource == "pods" && call.name.is_empty());
    let of_all = lists.filter(|call| call.verb == Verb::List && call.field_selector.is_empty());
    assert_eq!(of_all.count(), 0, "{calls:#?}");
    let statuses = calls.iter().filter(|call| call.resource == "nodes/status" && call.name == "hollow-0");
    // Its readiness, and the volumes that it uses.
    assert!(statuses.count() <= 2, "{calls:#?}");
    hollow.kill().await.unwrap();
    shutdown.cancel();
    serves.await.unwrap().unwrap();
}
