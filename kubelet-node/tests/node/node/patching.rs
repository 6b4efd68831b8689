//! Whatever the status was and is to be: the patch makes the one of the other.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kubelet_node::{
    HeartbeatClient, LocalNode, MachineInfo, NodeConfig, NodeInformer, NodeStatusSetter, NodeStatusUpdater,
    Result,
};
use kubelet_testing::{ApiServer, eventually};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::rig::{Network, Requests, clock};

/// Sets all of the status.
struct Whole(NodeStatus);

#[async_trait]
impl NodeStatusSetter for Whole {
    fn name(&self) -> &str {
        "Ready"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        node.status = Some(self.0.clone());
        Ok(())
    }
}

fn status() -> impl Strategy<Value = Value> {
    let addresses = |reversed: bool| {
        let mut list = vec![
            json!({"type": "InternalIP", "address": "10.0.0.1"}),
            json!({"type": "InternalIP", "address": "fd00::1"}),
            json!({"type": "ExternalIP", "address": "8.8.8.8"}),
            json!({"type": "Hostname", "address": "node1"}),
        ];
        if reversed {
            list.reverse();
        }
        list
    };
    // As a kubelet lists them, those of one type stand together.
    let addresses = any::<bool>().prop_flat_map(move |reversed| subsequence(addresses(reversed), 0..=4));
    let condition = |type_: &'static str| {
        let reason = prop::option::of(select(vec!["Because", "Else"]));
        (select(vec!["True", "False"]), reason, 0..3).prop_map(move |(status, reason, second)| {
            let mut condition = json!({"type": type_, "status": status,
                "lastHeartbeatTime": format!("2026-01-01T00:00:0{second}Z")});
            if let Some(reason) = reason {
                condition["reason"] = json!(reason);
            }
            condition
        })
    };
    let conditions = (
        condition("MemoryPressure"),
        condition("example.com/Own"),
        condition("Ready"),
    )
        .prop_map(|(a, b, c)| vec![a, b, c])
        .prop_flat_map(|all| subsequence(all, 0..=3))
        .prop_shuffle();
    let amounts = prop::collection::btree_map(
        select(vec!["cpu", "memory", "example.com/x"]),
        select(vec!["1", "2"]),
        0..3,
    );
    let names = || subsequence(vec!["a", "b", "c"], 0..=3).prop_shuffle();
    (addresses, conditions, amounts, names(), names(), any::<bool>()).prop_map(
        |(addresses, conditions, amounts, images, volumes, features)| {
            let images: Vec<Value> = images.iter().map(|name| json!({"names": [name]})).collect();
            let mut status = json!({"capacity": amounts, "allocatable": amounts, "addresses": addresses,
                "conditions": conditions, "images": images, "volumesInUse": volumes});
            if features {
                status["features"] = json!({"supplementalGroupsPolicy": true});
            }
            without_empty(status)
        },
    )
}

/// Lists that are empty are not there; what the server always shows always is.
fn without_empty(mut status: Value) -> Value {
    if status["nodeInfo"].is_null() {
        let fields = [
            "architecture",
            "bootID",
            "containerRuntimeVersion",
            "kernelVersion",
            "kubeProxyVersion",
            "kubeletVersion",
            "machineID",
            "operatingSystem",
            "osImage",
            "systemUUID",
        ];
        status["nodeInfo"] = fields
            .map(|field| (field.to_owned(), json!("")))
            .into_iter()
            .collect();
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": 0}});
    }
    let is_empty = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        value => value.is_null(),
    };
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !is_empty(value));
    }
    status
}

async fn patched(old: &Value, new: &Value) -> Value {
    let server = ApiServer::builder().clock(clock()).build();
    let node = json!({"metadata": {"name": "node1"}, "status": old});
    server
        .create(&serde_json::from_value::<Node>(node).unwrap())
        .unwrap();
    let requests = Requests::default();
    let client = requests.client(&server, "node1");
    let local = LocalNode::builder(NodeConfig::new("node1"), MachineInfo::new(1, 1 << 30))
        .network(Network::with(&["10.0.0.1"]))
        .setter(Arc::new(Whole(serde_json::from_value(new.clone()).unwrap())))
        .build();
    let informer = NodeInformer::new(client.clone(), "node1");
    let updater = NodeStatusUpdater::new(Arc::new(local), informer.handle(), HeartbeatClient::new(client));
    let shutdown = CancellationToken::new();
    let patched = async {
        eventually!(requests.of("PATCH").len(), |patches| *patches > 0);
        shutdown.cancel();
    };
    tokio::join!(
        informer.run(shutdown.clone()),
        updater.run(shutdown.clone()),
        patched
    );
    let node: Node = server.get("", "node1").unwrap().unwrap();
    without_empty(json!(node.status.unwrap_or_default()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_server_shows_what_was_worked_out(old in status(), new in status()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let shown = runtime.block_on(patched(&old, &new));
        prop_assert_eq!(shown, new);
    }
}
