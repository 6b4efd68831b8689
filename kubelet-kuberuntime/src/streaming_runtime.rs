//! What the node's server asks of the runtime: the streams of containers, commands and checkpoints.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodKey;
use kubelet_core::runtime::streaming::{StreamError, StreamErrorKind, StreamOptions, StreamingRuntime};

use crate::runtime::CriRuntime;
use kubelet_cri::{Code, Error, v1};

/// An error of this crate about a pod or container that does not run has the kind [`StreamErrorKind::Other`], because
/// the kubelet answers it with the status 500. An error of the runtime has the kind of its gRPC code, and Go's text of
/// it: `rpc error: code = NotFound desc = …`.
#[async_trait]
impl StreamingRuntime for CriRuntime {
    async fn exec_url(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        streams: StreamOptions,
    ) -> Result<String, StreamError> {
        let url = Self::exec_url(self, pod, container, command, streams).await;
        url.map_err(|error| stream_error(pod, &error))
    }

    async fn attach_url(
        &self,
        pod: &Pod,
        container: &str,
        streams: StreamOptions,
    ) -> Result<String, StreamError> {
        let url = Self::attach_url(self, pod, container, streams).await;
        url.map_err(|error| stream_error(&kubelet_core::PodExt::key(pod), &error))
    }

    async fn port_forward_url(&self, pod: &PodKey, ports: &[u16]) -> Result<String, StreamError> {
        let url = Self::port_forward_url(self, pod, ports).await;
        url.map_err(|error| stream_error(pod, &error))
    }

    async fn run_in_container(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<Vec<u8>, StreamError> {
        let output = Self::run_in_container(self, pod, container, command, timeout).await;
        let output = output.map_err(|error| stream_error(pod, &error))?;
        if output.exit_code != 0 {
            return Err(StreamError::other(format_args!(
                "command '{}' exited with {}: {}",
                command.join(" "),
                output.exit_code,
                String::from_utf8_lossy(&output.stderr)
            )));
        }
        let mut both = output.stdout;
        both.extend_from_slice(&output.stderr);
        Ok(both)
    }

    async fn checkpoint_container(
        &self,
        pod: &PodKey,
        container: &str,
        location: &Path,
        timeout: Duration,
    ) -> Result<(), StreamError> {
        const CALL: &str = "CheckpointContainer";
        let found = self.find_container(CALL, pod, container).await;
        let id = found
            .map_err(|error| stream_error(pod, &error))?
            .ok_or_else(|| StreamError::other(format_args!("container {container} not found")))?;
        let Some(location) = location.to_str() else {
            let message = format!("the path {} is not valid UTF-8", location.display());
            return Err(StreamError::new(StreamErrorKind::InvalidArgument, message));
        };
        let request = v1::CheckpointContainerRequest {
            container_id: id,
            location: location.to_owned(),
            timeout: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        };
        let done = self.runtime.checkpoint_container(request).await;
        done.map(drop).map_err(|error| stream_error(pod, &error))
    }
}

/// The error for the client. The errors of this crate have the pod as their id; all others are the runtime's.
fn stream_error(pod: &PodKey, error: &Error) -> StreamError {
    let is_own = error.id().is_some_and(|id| id == pod.to_string());
    match is_own && error.is_not_found() {
        true => StreamError::other(error.message()),
        false => runtime_error(error),
    }
}

/// An error of the runtime.
pub(crate) fn runtime_error(error: &Error) -> StreamError {
    let kind = error.code().into();
    match error {
        // The kubelet's own message for a request or an answer that is not valid.
        Error::Call { id, message, .. } if id.is_empty() && kind == StreamErrorKind::InvalidArgument => {
            StreamError::new(kind, message)
        }
        Error::Call {
            code: Code::DeadlineExceeded,
            message,
            ..
        } if message.starts_with("command timed out: ") => StreamError::new(kind, message),
        Error::Call { .. } | Error::Timeout { .. } => StreamError::new(kind, error.rpc_text()),
        Error::InvalidResponse { message, .. } => StreamError::new(kind, message),
        other => StreamError::new(kind, other.to_string()),
    }
}
