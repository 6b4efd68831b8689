//! A controller on kube-runtime: a scheduler that binds each pod to the node with the fewest pods. It works with every API
//! server. Here it runs against the one in memory, with a paused clock, so nine minutes take a moment.
//!
//! `cargo run -p kubelet-apiserver --example controller`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{ListParams, PostParams};
use kube_client::{Api, Client};
use kube_runtime::Controller;
use kube_runtime::controller::Action;
use kube_runtime::watcher;
use kubelet_apiserver::{ApiServer, Memory, Verb};
use serde_json::json;

/// Schedules until it is dropped.
pub async fn run(client: Client) {
    let unscheduled = watcher::Config::default().fields("spec.nodeName=");
    Controller::new(Api::<Pod>::all(client.clone()), unscheduled)
        .run(schedule, try_again, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

async fn schedule(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube_client::Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let client = client.as_ref();
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    let mut loads: BTreeMap<String, usize> = nodes
        .into_iter()
        .filter_map(|node| Some((node.metadata.name?, 0)))
        .collect();
    for pod in Api::<Pod>::all(client.clone())
        .list(&ListParams::default())
        .await?
    {
        let node = pod.spec.and_then(|spec| spec.node_name);
        if let Some(load) = node.and_then(|node| loads.get_mut(&node)) {
            *load += 1;
        }
    }
    let Some((node, _)) = loads.into_iter().min_by_key(|(_, load)| *load) else {
        return Ok(Action::requeue(Duration::from_secs(10)));
    };
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node),
            ..ObjectReference::default()
        },
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let _: serde_json::Value = pods
        .create_subresource("binding", name, &PostParams::default(), &binding)
        .await?;
    Ok(Action::await_change())
}

fn try_again(_: Arc<Pod>, _: &kube_client::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    demonstrate().await
}

/// Nine pods for three nodes, with faults and a restart of the API server.
pub async fn demonstrate() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::new();
    for name in ["one", "two", "three"] {
        server.create::<Node>(&serde_json::from_value(json!({"metadata": {"name": name}}))?)?;
    }
    // Faults that a real API server shows now and then.
    let faults = server.faults();
    faults
        .on(Verb::Create)
        .resource("pods/binding")
        .first(2)
        .fails(500, "etcdserver: leader changed");
    faults.on(Verb::List).resource("nodes").nth(3).reply_lost();

    let controller = tokio::spawn(run(server.client()));
    for n in 1..=9 {
        let pod = json!({
            "metadata": {"name": format!("web-{n}")}, "spec": {"containers": [{"name": "main", "image": "nginx:1.29"}]},
        });
        server.create::<Pod>(&serde_json::from_value(pod)?)?;
        if n == 5 {
            server.restart(Memory::Lost);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    controller.abort();

    let mut loads = BTreeMap::new();
    for pod in server.list::<Pod>()? {
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        *loads.entry(node).or_insert(0) += 1;
    }
    for (node, pods) in &loads {
        println!("{node}: {pods} pods");
    }
    for fault in faults.injected() {
        println!("in spite of: {fault}");
    }
    assert_eq!(loads.values().collect::<Vec<_>>(), [&3, &3, &3]);
    Ok(())
}
