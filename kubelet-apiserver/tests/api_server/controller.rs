//! Runs the example `controller`.
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/controller.rs"]
mod example;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kubelet_apiserver::ApiServer;
use kubelet_apiserver::Verb;
use serde_json::json;

use super::PATIENCE;

#[tokio::test(start_paused = true)]
async fn the_example_runs() {
    example::demonstrate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn schedules_once_there_is_a_node_in_spite_of_faults() {
    let server = ApiServer::builder().seed(3).build();
    server.faults().on_any_call().rate(0.2).connection_lost();
    server
        .faults()
        .on(Verb::Watch)
        .rate(0.5)
        .broken_after(Duration::from_secs(20));
    let controller = tokio::spawn(example::run(server.client()));
    for n in 0..20 {
        let pod = json!({
            "metadata": {"name": format!("p{n}")}, "spec": {"containers": [{"name": "main", "image": "nginx"}]},
        });
        server
            .create::<Pod>(&serde_json::from_value(pod).unwrap())
            .unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let unbound = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.is_none();
    assert!(server.list::<Pod>().unwrap().iter().all(unbound));
    let node = json!({"metadata": {"name": "one"}});
    server
        .create::<Node>(&serde_json::from_value(node).unwrap())
        .unwrap();
    let all_bound = async {
        while server.list::<Pod>().unwrap().iter().any(unbound) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_bound).await.unwrap();
    assert!(!server.faults().injected().is_empty());
    controller.abort();
}
