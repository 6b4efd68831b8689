//! `/run/NAMESPACE/POD[/UID]/CONTAINER?cmd=…`: a command, and its output when it has ended.

use std::time::Duration;

use http::{Method, Response, StatusCode};
use kubelet_core::runtime::streaming::StreamingRuntime;

use super::{ContainerPath, parameter};
use crate::body::{self, Body};
use crate::pods::NodePods;

/// The answer to `/run`.
pub(crate) async fn serve(
    pods: &dyn NodePods,
    runtime: &dyn StreamingRuntime,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    let Some(path) = ContainerPath::parse(path, true) else {
        return body::page_not_found();
    };
    if method != Method::POST {
        return body::method_not_allowed("POST");
    }
    if pods.pod(&path.pod).is_none() {
        return body::text(StatusCode::NOT_FOUND, "pod does not exist");
    }
    let command = parameter(query, "cmd").unwrap_or_default();
    let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
    match runtime
        .run_in_container(&path.pod, &path.container, &command, Duration::ZERO)
        .await
    {
        // Without output there is nothing whose type could be named.
        Ok(output) if output.is_empty() => http::Response::new(body::full("")),
        Ok(output) => body::answer(StatusCode::OK, body::JSON, output),
        Err(error) => body::text(StatusCode::INTERNAL_SERVER_ERROR, error.message),
    }
}
