//! `/pods` and `/runningpods/`: the desired pods, and those that the runtime runs.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{Method, Response, StatusCode};
use kubelet_core::PodExt as _;
use kubelet_core::runtime::{ContainerState, RuntimePod, RuntimeReader};
use serde_json::{Value, json};

use super::encoded_pods::EncodedPods;
use crate::BoxError;
use crate::body::{self, Body};
use crate::pods::NodePods;

const HEAD: &[u8] = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":"#;
/// A piece of the answer has at least this many bytes, and the last pod in it may be longer: fewer pieces cost less, and more
/// bytes at once would be memory of their own for each client.
const PIECE: usize = 8 * 1024;
/// The room for the last pod of a piece.
const ROOM: usize = 4 * 1024;

/// The answer to `/pods`: some pods at a time are encoded when the client takes them.
pub(crate) fn serve(
    pods: &Arc<dyn NodePods>,
    encoded: &Arc<EncodedPods>,
    path: &str,
    method: &Method,
) -> Response<Body> {
    if path.trim_end_matches('/') != "/pods" {
        return body::page_not_found();
    }
    if method != Method::GET {
        return body::method_not_allowed("GET");
    }
    let (all, pods, encoded) = (pods.pods(), pods.clone(), encoded.clone());
    encoded.forget_gone();
    if all.is_empty() {
        return body::answer(StatusCode::OK, body::JSON, [HEAD, b"null}\n"].concat());
    }
    let mut remaining = Some(all.into_iter());
    let mut begin = [HEAD, b"["].concat();
    let pieces = std::iter::from_fn(move || {
        let next = remaining.as_mut()?;
        let mut piece = Vec::with_capacity(PIECE + ROOM);
        while piece.len() < PIECE {
            let Some(pod) = next.next() else {
                piece.extend_from_slice(b"]}\n");
                remaining = None;
                break;
            };
            piece.append(&mut begin);
            begin.push(b',');
            // A static pod has no status but the reported one.
            let reported = pod.is_static().then(|| pods.status(&pod)).flatten();
            if let Err(error) = encoded.append(&pod, reported.as_ref(), &mut piece) {
                remaining = None;
                return Some(Err(BoxError::from(error)));
            }
        }
        Some(Ok(Bytes::from(piece)))
    });
    let mut response = Response::new(body::streamed(stream::iter(pieces)));
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, body::JSON);
    response
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
