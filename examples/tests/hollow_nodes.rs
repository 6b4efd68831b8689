//! The program `hollow-nodes` on an API server.

use std::process::Stdio;

use kubelet_testing::api_server::Verb;
use kubelet_testing::{ApiServer, User};
use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::program::program;

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
    let mut hollow = tokio::process::Command::new(program("hollow-nodes"))
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
