//! `/containerLogs/NAMESPACE/POD/CONTAINER`: the log of a container.

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Response, StatusCode};
use kubelet_core::runtime::{ContainerLogs, LogStreams};

use super::{ContainerPath, log_options};
use crate::BoxError;
use crate::body::{self, Body};
use crate::pods::NodePods;

/// The answer to a log request. `split_streams` is the gate `PodLogsQuerySplitStreams`.
pub(crate) async fn serve(
    pods: &dyn NodePods,
    logs: &dyn ContainerLogs,
    split_streams: bool,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    let Some(path) = ContainerPath::parse(path, false) else {
        return body::page_not_found();
    };
    if method != Method::GET {
        return body::method_not_allowed("GET");
    }
    let refused = |status, message: String| body::text(status, message);
    let Ok(decoded) = log_options::decode(query) else {
        return refused(
            StatusCode::BAD_REQUEST,
            r#"{"message": "Unable to decode query."}"#.into(),
        );
    };
    if decoded.is_invalid() {
        return refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            r#"{"message": "Invalid request."}"#.into(),
        );
    }
    let name = &path.pod.name;
    let Some(pod) = pods.pod(&path.pod) else {
        return refused(StatusCode::NOT_FOUND, format!("pod {name:?} does not exist"));
    };
    if !has_container(&pod, &path.container) {
        let message = format!("container {:?} not found in pod {name:?}", path.container);
        return refused(StatusCode::NOT_FOUND, message);
    }
    if !split_streams && decoded.options.stream != LogStreams::All {
        let stream = decoded.stream.unwrap_or_default();
        let message = format!(
            "unable to return the given log stream: {stream:?}. \
             Please enable PodLogsQuerySplitStreams feature gate in kubelet"
        );
        return refused(StatusCode::BAD_REQUEST, message);
    }
    let status = pods.status(&pod);
    let status = status
        .as_deref()
        .or(pod.status.as_ref())
        .cloned()
        .unwrap_or_default();
    match logs
        .container_logs(&pod, &status, &path.container, decoded.options)
        .await
    {
        // The status was sent: an error can only follow what was read.
        Ok(pieces) => Response::new(body::streamed(pieces.map(|piece| {
            Ok::<_, BoxError>(Bytes::from(
                piece.unwrap_or_else(|error| error.message.into_bytes()),
            ))
        }))),
        Err(error) => refused(StatusCode::BAD_REQUEST, error.message),
    }
}

/// Whether the pod's spec has a container of this name (`GetContainerSpec`).
pub(crate) fn has_container(pod: &k8s_openapi::api::core::v1::Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .map(|container| &container.name);
    let init = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| &container.name);
    spec.containers
        .iter()
        .map(|container| &container.name)
        .chain(init)
        .chain(ephemeral)
        .any(|found| found == name)
}
