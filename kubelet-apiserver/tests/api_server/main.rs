//! The API server in memory: kube clients, `kubectl` and a controller against it, and recordings of a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod claims;
mod client;
mod controller;
mod faults;
mod kept;
mod kubectl;
mod limits;
mod listing;
mod loopback;
mod nodes;
mod recorded;
mod recorded_pods;
mod reviews;
mod storage;
mod tls;
mod watching;

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube_client::api::PostParams;
use kube_client::{Api, Error};
use kubelet_apiserver::ApiServer;
use kubelet_core::Clock;
use serde_json::{Value, json};

/// How long a test waits for a thing, on the paused clock.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

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
