//! `/checkpoint/NAMESPACE/POD/CONTAINER`: writes a checkpoint of a container.

use std::path::Path;
use std::time::Duration;

use http::{Method, Response, StatusCode};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::streaming::StreamingRuntime;
use serde_json::json;

use super::container_logs::has_container;
use super::{ContainerPath, parameters};
use crate::body::{self, Body};
use crate::pods::NodePods;

/// The answer to `/checkpoint`. The file is written to `dir`.
pub(crate) async fn serve(
    pods: &dyn NodePods,
    runtime: &dyn StreamingRuntime,
    dir: &Path,
    now: Timestamp,
    method: &Method,
    path: &str,
    query: &str,
) -> Response<Body> {
    let Some(ContainerPath {
        pod: key, container, ..
    }) = ContainerPath::parse(path, false)
    else {
        return body::page_not_found();
    };
    if method != Method::POST {
        return body::method_not_allowed("POST");
    }
    let Some(pod) = pods.pod(&key) else {
        return body::text(StatusCode::NOT_FOUND, "pod does not exist");
    };
    if !has_container(&pod, &container) {
        return body::text(
            StatusCode::NOT_FOUND,
            format!("container {container} does not exist"),
        );
    }
    // The last value counts.
    let timeout = match parameters(query, "timeout")
        .last()
        .map(|timeout| timeout.parse::<i64>())
    {
        None => Duration::ZERO,
        Some(Ok(seconds)) => Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
        Some(Err(_)) => return body::text(StatusCode::NOT_FOUND, "cannot parse value of timeout parameter"),
    };
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let location = dir.join(format!(
        "checkpoint-{}-{container}-{seconds}.tar",
        key.full_name()
    ));
    let made = async {
        let cannot = |error: std::io::Error| format!("cannot create {}: {error}", dir.display());
        // A checkpoint has the memory of the container.
        let mut builder = tokio::fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .await
            .map_err(cannot)?;
        let written = runtime
            .checkpoint_container(&key, &container, &location, timeout)
            .await;
        written.map_err(|error| error.message)
    };
    match made.await {
        Ok(()) => body::answer(
            StatusCode::OK,
            body::JSON,
            json!({ "items": [location] }).to_string(),
        ),
        Err(message) => {
            let about = format!("{}/{}/{container}", key.namespace, key.name);
            let message = format!("checkpointing of {about} failed ({message})");
            body::text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}
