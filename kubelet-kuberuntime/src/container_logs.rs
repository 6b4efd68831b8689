//! The logs of containers, by their ids (`GetContainerLogs`), and by their names in the pod.

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::ContainerId;
use kubelet_core::runtime::ContainerLogs;
use kubelet_core::runtime::streaming::StreamError;

use crate::Error;
use crate::logs::{LogChunks, LogReader, PodLogOptions, container_of_logs};
use crate::runtime::CriRuntime;
use crate::streaming_runtime::runtime_error;
use kubelet_cri::v1;

impl CriRuntime {
    /// Reads the log of a container. [`container_of_logs`](crate::logs::container_of_logs) finds the id for a
    /// container's name.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] with the kubelet's message, if the runtime does not have the container. Read errors come with the
    /// stream: [`LogReader::read`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn container_logs(
        &self,
        container: &ContainerId,
        options: PodLogOptions,
    ) -> Result<LogChunks, Error> {
        Ok(self.log_reader(container, options).await?.read())
    }

    async fn log_reader(&self, container: &ContainerId, options: PodLogOptions) -> Result<LogReader, Error> {
        let id = container.id();
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let status = self.runtime.container_status(request).await.map_err(|error| {
            tracing::debug!(%container, %error, "cannot get the status of a container to read its log");
            let message = format!("unable to retrieve container logs for {container}");
            Error::Log {
                path: String::new(),
                message,
            }
        })?;
        let (log_path, is_running) = match status.status {
            Some(status) => {
                let is_running = status.state() == v1::ContainerState::ContainerRunning;
                (status.log_path, is_running)
            }
            None => {
                let message = "container status is nil".to_owned();
                let call = "ContainerStatus";
                let id = id.to_owned();
                return Err(kubelet_cri::Error::InvalidResponse { call, id, message }.into());
            }
        };
        Ok(LogReader::new(log_path)
            .options(options)
            .container(self.runtime.clone(), id)
            .seen_running(is_running)
            .clock(self.clock)
            .disk(self.node.disk)
            .watcher(self.log_watcher.clone()))
    }
}

#[async_trait]
impl ContainerLogs for CriRuntime {
    async fn container_logs(
        &self,
        pod: &Pod,
        status: &PodStatus,
        container: &str,
        options: PodLogOptions,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StreamError>>, StreamError> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let id = container_of_logs(name, status, container, options.previous);
        // The message is the kubelet's, not the runtime's.
        let id = id.map_err(|error| StreamError::other(error.message()))?;
        // From here on the kubelet has answered with the status 200: an error follows what was read.
        Ok(match self.log_reader(&id, options).await {
            Ok(reader) => reader.read_text().map_err(|error| stream_error(&error)).boxed(),
            Err(error) => stream::iter([Err(stream_error(&error))]).boxed(),
        })
    }
}

fn stream_error(error: &Error) -> StreamError {
    match error {
        Error::Cri(error) => runtime_error(error),
        other => StreamError::other(other),
    }
}
