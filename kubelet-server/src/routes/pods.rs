//! `/pods` and `/runningpods/`: the desired pods, and those that the runtime runs.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{Method, Response, StatusCode};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::PodExt as _;
use kubelet_core::runtime::{ContainerState, RuntimePod, RuntimeReader};
use serde::Serialize;
use serde_json::{Value, json};

use crate::BoxError;
use crate::body::{self, Body};
use crate::pods::NodePods;

const HEAD: &[u8] = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":"#;

/// The answer to `/pods`: each pod is encoded when the client takes it.
pub(crate) fn serve(pods: &Arc<dyn NodePods>, path: &str, method: &Method) -> Response<Body> {
    if path.trim_end_matches('/') != "/pods" {
        return body::page_not_found();
    }
    if method != Method::GET {
        return body::method_not_allowed("GET");
    }
    let (all, pods) = (pods.pods(), pods.clone());
    if all.is_empty() {
        return body::answer(StatusCode::OK, body::JSON, [HEAD, b"null}\n"].concat());
    }
    let items = all.into_iter().enumerate().map(move |(place, pod)| {
        // A static pod has no status but the reported one.
        let reported = pod.is_static().then(|| pods.status(&pod)).flatten();
        let none = PodStatus::default();
        let status = reported.as_deref().or(pod.status.as_ref()).unwrap_or(&none);
        let mut piece = if place == 0 {
            [HEAD, b"["].concat()
        } else {
            b",".to_vec()
        };
        serde_json::to_writer(&mut piece, &Item::of(&pod, status))?;
        Ok::<_, BoxError>(Bytes::from(piece))
    });
    let end = std::iter::once_with(|| Ok(Bytes::from_static(b"]}\n")));
    let mut response = Response::new(body::streamed(stream::iter(items.chain(end))));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, body::JSON);
    response
}

/// A pod in a list: without its kind.
#[derive(Serialize)]
struct Item<'a> {
    metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: Spec<'a>,
    status: &'a PodStatus,
}

/// A missing spec is written as `{}`.
#[derive(Serialize)]
#[serde(untagged)]
enum Spec<'a> {
    Known(&'a k8s_openapi::api::core::v1::PodSpec),
    Unknown {},
}

impl<'a> Item<'a> {
    fn of(pod: &'a Pod, status: &'a PodStatus) -> Self {
        Self {
            metadata: &pod.metadata,
            spec: pod.spec.as_ref().map_or(Spec::Unknown {}, Spec::Known),
            status,
        }
    }
}

/// The answer to `/runningpods/`: the pods of the runtime, with the containers that run.
pub(crate) async fn serve_running(
    runtime: &dyn RuntimeReader,
    path: &str,
    method: &Method,
) -> Response<Body> {
    if path.trim_end_matches('/') != "/runningpods" {
        return body::page_not_found();
    }
    if method != Method::GET {
        return body::method_not_allowed("GET");
    }
    match runtime.pods(false).await {
        Ok(pods) => {
            let items: Vec<Value> = pods.iter().map(|pod| api_pod(pod)).collect();
            let items = if items.is_empty() {
                Value::Null
            } else {
                items.into()
            };
            let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
            body::answer(StatusCode::OK, body::JSON, format!("{list}\n"))
        }
        Err(error) => body::text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// A pod of the runtime as an object of the API (`Pod.ToAPIPod`).
fn api_pod(pod: &RuntimePod) -> Value {
    let running = pod
        .containers
        .iter()
        .filter(|container| container.state == ContainerState::Running);
    let containers: Vec<Value> = running
        .map(|it| json!({ "name": it.name, "image": it.image, "resources": {} }))
        .collect();
    let containers = if containers.is_empty() {
        Value::Null
    } else {
        containers.into()
    };
    json!({
        "metadata": { "name": &*pod.key.name, "namespace": &*pod.key.namespace, "uid": pod.uid.as_str() },
        "spec": { "containers": containers },
        "status": {},
    })
}
