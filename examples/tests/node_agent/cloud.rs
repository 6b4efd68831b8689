//! A node whose cloud sets its addresses.

use std::fs;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Pod};
use kubelet_core::PodExt;
use serde_json::json;

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::standalone::{Agent, until};

/// The cloud sets this address on the node.
fn tell(cluster: &Cluster, address: &str) {
    let mut node = cluster.server.get::<Node>("", NODE).unwrap().unwrap();
    let address = NodeAddress { address: address.into(), type_: "InternalIP".into() };
    node.status.get_or_insert_default().addresses = Some(vec![address]);
    cluster.server.replace_status(&node).unwrap();
}

fn host_ip(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.host_ip.as_deref()
}

#[tokio::test]
async fn pods_are_told_the_addresses_that_a_cloud_tells() {
    let cluster = Cluster::on_processes().await;
    let mut command = cluster.command("syncFrequency: 2s");
    command.arg("--cloud-provider=external").arg("--kubeconfig").arg(cluster.path("kubeconfig"));
    let mut agent = Agent::spawn(&mut command);
    let node = cluster.node_is_ready().await;
    let own = node.status.unwrap().addresses.unwrap();
    assert!(own.iter().all(|address| address.type_ == "Hostname"), "{own:?}");
    tell(&cluster, "10.1.2.3");
    agent.logs(&["the node's addresses", "10.1.2.3"]).await;

    let env = json!({"env": [{"name": "AT", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]});
    let web = cluster.create(&pod("web", &format!("echo at $AT; {SERVER}"), env));
    let told = cluster.ready("web").await;
    assert_eq!(host_ip(&told), Some("10.1.2.3"));
    assert_eq!(told.status.unwrap().pod_ip.as_deref(), Some("10.1.2.3"));
    let log = cluster.path("logs").join(format!("default_web_{}", web.uid_str())).join("main/0.log");
    let logged = async || fs::read_to_string(&log).ok().filter(|log| log.contains("up"));
    let logged = until("the log of web", logged).await;
    assert!(logged.contains("at 10.1.2.3"), "{logged}");

    tell(&cluster, "10.1.2.4");
    cluster.pod("web", "is at the node's next address", |pod| host_ip(pod) == Some("10.1.2.4")).await;
    agent.interrupt().await;
    cluster.end().await;
}
