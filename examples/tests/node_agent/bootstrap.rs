//! A node joins with a bootstrap token and nothing else.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::standalone::{Agent, until};

#[tokio::test]
async fn a_node_joins_with_a_token_and_is_itself_from_then_on() {
    let cluster = Cluster::bootstrapping().await;
    let start = || {
        let mut command = cluster.command("rotateCertificates: true");
        command.arg("--kubeconfig").arg(cluster.path("kubeconfig"));
        Agent::spawn(command.arg("--bootstrap-kubeconfig").arg(cluster.path("bootstrap-kubeconfig")))
    };
    let current = || fs::read_link(cluster.path("pki/kubelet-client-current.pem")).ok();
    let mut agent = start();
    cluster.node_is_ready().await;
    // Events from before the registration are sent, and no request is anonymous.
    cluster.event(NODE, "Starting", "Starting kubelet.").await;
    let unknown = cluster.server.calls().all().into_iter().filter(|call| call.user == "system:anonymous");
    assert_eq!(unknown.count(), 0);
    cluster.create(&pod("web", SERVER, json!({})));
    cluster.ready("web").await;

    // Certificates are replaced, and neither watch nor heartbeat breaks.
    let asked = |line: &str| cluster.server.calls().count(line);
    let watches = || (asked("watch nodes"), asked("watch pods"));
    let (first, renewed, before) = (current(), cluster.renewed(), watches());
    let another = async || (current() != first && cluster.renewed() > renewed).then_some(());
    until("another certificate, and the lease is renewed", another).await;
    cluster.create(&pod("next", SERVER, json!({})));
    cluster.ready("next").await;
    assert_eq!(watches(), before);
    let kubeconfig = fs::read_to_string(cluster.path("kubeconfig")).unwrap();
    assert!(kubeconfig.contains("kubelet-client-current.pem"), "{kubeconfig}");
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());

    // The next agent has a certificate, and needs no token.
    fs::remove_file(cluster.path("bootstrap-kubeconfig")).unwrap();
    let tokens = || {
        let calls = cluster.server.calls().all().into_iter();
        calls.filter(|call| call.user.starts_with("system:bootstrap")).count()
    };
    let asked_by_token = tokens();
    let mut agent = start();
    cluster.create(&pod("later", SERVER, json!({})));
    cluster.ready("later").await;
    assert_eq!(tokens(), asked_by_token);
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
