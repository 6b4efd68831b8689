//! `metrics.k8s.io`, from the answers of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kubelet_apiserver::User;
use serde_json::{Value, json};

use super::fake::{FakeNode, whole};
use super::{Cluster, status, text};

/// A node that serves `/metrics/resource`: between two scrapes 10 s have passed. In this time the node has used 2 s of CPU
/// time, the container of `web` 1 s, those of `pair` half a second each.
pub(super) async fn node_with_usage(cluster: &Cluster) -> FakeNode {
    let scrapes = Arc::new(AtomicU64::new(1));
    let node = FakeNode::start(&cluster.server, move |request| {
        let scrapes = scrapes.clone();
        async move {
            assert_eq!(request.uri(), "/metrics/resource");
            let n = scrapes.fetch_add(1, Ordering::Relaxed);
            let time = 1_767_225_600_000 + n * 10_000;
            let mut text = format!(
                "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds\n\
                 # TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total {} {time}\n\
                 node_memory_working_set_bytes 5.24288e+08 {time}\nnode_swap_usage_bytes 0 {time}\n",
                2 * n
            );
            for (pod, container, cpu) in [
                ("web", "main", n as f64),
                ("pair", "a", n as f64 / 2.0),
                ("pair", "b", n as f64 / 2.0),
                ("gone", "main", n as f64),
            ] {
                let labels = format!("{{container=\"{container}\",namespace=\"default\",pod=\"{pod}\"}}");
                text.push_str(&format!(
                    "container_cpu_usage_seconds_total{labels} {cpu} {time}\n\
                     container_memory_working_set_bytes{labels} 1.048576e+06 {time}\n\
                     container_start_time_seconds{labels} 1.7672e+09\n"
                ));
            }
            whole(200, &text)
        }
    });
    let node = node.await;
    cluster.register_fake(&node);
    for name in ["web", "pair"] {
        let mut pod: Pod = cluster.server.get("default", name).unwrap().unwrap();
        pod.status = serde_json::from_value(json!({"phase": "Running"})).unwrap();
        cluster.server.replace_status(&pod).unwrap();
        let labels = json!({"metadata": {"labels": {"app": name}}});
        let mut pod: Pod = cluster.server.get("default", name).unwrap().unwrap();
        pod.metadata.labels = serde_json::from_value(labels["metadata"]["labels"].clone()).unwrap();
        cluster.server.replace(&pod).unwrap();
    }
    node
}

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

async fn get(cluster: &Cluster, path: &str) -> Value {
    serde_json::from_str(&text(cluster.get(&format!("{GROUP}{path}")).await).await).unwrap()
}

#[tokio::test]
async fn serves_the_usage_of_nodes_and_pods() {
    let cluster = Cluster::start().await;
    let node = node_with_usage(&cluster).await;

    let mut list = get(&cluster, "/nodes").await;
    assert!(
        list["items"][0]["metadata"]["creationTimestamp"]
            .take()
            .is_string()
    );
    let usage = json!({"cpu": "200m", "memory": "500Mi", "swap": "0"});
    assert_eq!(
        list,
        json!({
            "kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [{
                "metadata": {"name": "one", "creationTimestamp": null}, "timestamp": "2026-01-01T00:00:20Z",
                "window": "10s", "usage": usage,
            }],
        })
    );
    let one = get(&cluster, "/nodes/one").await;
    assert_eq!((&one["kind"], &one["usage"]), (&json!("NodeMetrics"), &usage));

    let pods = get(&cluster, "/pods").await;
    let names: Vec<&Value> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| &pod["metadata"]["name"])
        .collect();
    assert_eq!(names, ["pair", "web"]);
    let selected = get(&cluster, "/namespaces/default/pods?labelSelector=app%3Dpair").await;
    let container = |name: &str| json!({"name": name, "usage": {"cpu": "50m", "memory": "1Mi", "swap": "0"}});
    let pair = &selected["items"][0];
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    assert_eq!(pair["containers"], json!([container("a"), container("b")]));
    assert_eq!(pair["metadata"]["labels"], json!({"app": "pair"}));
    assert_eq!(
        (&pair["window"], &pair["timestamp"]),
        (&json!("10s"), &json!("2026-01-01T00:00:20Z"))
    );
    let elsewhere = get(&cluster, "/namespaces/kube-system/pods").await;
    assert_eq!(elsewhere["items"], json!([]));

    for (path, message) in [
        ("/nodes/gone", "nodes \"gone\" not found"),
        ("/namespaces/default/pods/gone", "pods \"gone\" not found"),
        (
            "/namespaces/default/pods/waiting",
            "pods.metrics.k8s.io \"default/waiting\" not found",
        ),
    ] {
        let response = cluster.get(&format!("{GROUP}{path}")).await;
        assert_eq!(status(response).await, (404, "NotFound".into(), message.into()));
    }
    for (user, method, code) in [(User::node("one"), "GET", 403), (User::admin(), "DELETE", 405)] {
        let request = Request::builder()
            .method(method)
            .uri(format!("{GROUP}/nodes/one"));
        assert_eq!(cluster.send(user, request, "").await.status(), code);
    }

    // The table adds up the containers.
    let request = Request::get(format!("{GROUP}/namespaces/default/pods/pair"))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value =
        serde_json::from_str(&text(cluster.send(User::admin(), request, "").await).await).unwrap();
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["pair", "100m", "2Mi", "0", "10s"])
    );

    // Without an answer of the node there is nothing.
    drop(node);
    cluster.end().await;
}

#[tokio::test]
async fn a_node_that_does_not_answer_has_no_usage() {
    let cluster = Cluster::start().await;
    let (_bound, port) = super::closed_port();
    cluster.register(port);
    assert_eq!(get(&cluster, "/nodes").await["items"], json!([]));
    let unknown = "nodes.metrics.k8s.io \"one\" not found".to_owned();
    let response = cluster.get(&format!("{GROUP}/nodes/one")).await;
    assert_eq!(status(response).await, (404, "NotFound".into(), unknown));
    cluster.end().await;
}

#[tokio::test]
async fn discovery_lists_the_group_only_if_it_is_served() {
    let cluster = Cluster::start().await;
    let groups = text(cluster.get("/apis").await).await;
    assert!(groups.contains("metrics.k8s.io"));
    let resources = get(&cluster, "").await;
    let found: Vec<_> = resources["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| (&resource["name"], &resource["kind"], &resource["verbs"]))
        .collect();
    let verbs = json!(["get", "list"]);
    assert_eq!(
        found,
        [
            (&json!("nodes"), &json!("NodeMetrics"), &verbs),
            (&json!("pods"), &json!("PodMetrics"), &verbs)
        ]
    );
    cluster.end().await;

    let without = kubelet_apiserver::ApiServer::new().client();
    let get = |path: String| without.request_text(Request::get(path).body(Vec::new()).unwrap());
    assert!(!get("/apis".into()).await.unwrap().contains("metrics.k8s.io"));
    assert!(get(format!("{GROUP}/nodes")).await.is_err());
}
