//! kube clients against the API server in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "api_server/client.rs"]
mod client;
#[path = "api_server/faults.rs"]
mod faults;
#[path = "api_server/listing.rs"]
mod listing;
#[path = "api_server/loopback.rs"]
mod loopback;
#[cfg(feature = "tls")]
#[path = "api_server/tls.rs"]
mod tls;
#[path = "api_server/watching.rs"]
mod watching;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube_client::api::PostParams;
use kube_client::{Api, Error};
use kubelet_core::Clock;
use kubelet_testing::ApiServer;
use serde_json::{Value, json};

/// A server whose clock begins with the year 2026.
fn server() -> ApiServer {
    let start = Timestamp::constant(1_767_225_600, 0);
    ApiServer::builder()
        .clock(Clock::starting_at(start))
        .seed(7)
        .build()
}

fn pods(server: &ApiServer) -> Api<Pod> {
    Api::namespaced(server.client(), "default")
}

fn pod(name: &str) -> Pod {
    pod_of(json!({"metadata": {"name": name, "labels": {"app": name}}}))
}

/// A pod with one container beside what is given.
fn pod_of(mut pod: Value) -> Pod {
    pod["spec"]["containers"] = json!([{"name": "main", "image": "busybox:1.36"}]);
    serde_json::from_value(pod).unwrap()
}

async fn create(pods: &Api<Pod>, name: &str) -> Pod {
    pods.create(&PostParams::default(), &pod(name)).await.unwrap()
}

fn version(pod: &Pod) -> String {
    pod.metadata.resource_version.clone().unwrap()
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap()
}

/// The code and reason of a refusal.
#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason),
        other => panic!("not refused: {other:?}"),
    }
}
