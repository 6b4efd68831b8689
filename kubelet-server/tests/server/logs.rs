//! The logs of the recording, as a runtime would serve them.

use std::path::PathBuf;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::runtime::streaming::StreamError;
use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
use kubelet_kuberuntime::logs::{LogReader, container_of_logs};

/// The log files below a folder: `POD/CONTAINER.log`.
pub(crate) struct LogFolder(pub(crate) PathBuf);

#[async_trait]
impl ContainerLogs for LogFolder {
    async fn container_logs(
        &self,
        pod: &Pod,
        status: &PodStatus,
        container: &str,
        options: PodLogOptions,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StreamError>>, StreamError> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let previous = options.previous;
        let id = container_of_logs(&name, status, container, previous);
        let id = id.map_err(|error| StreamError::other(error.message()))?;
        if previous {
            // It is not in the runtime any more.
            let error = StreamError::other(format!("unable to retrieve container logs for {id}"));
            return Ok(stream::iter([Err(error)]).boxed());
        }
        let file = self.0.join(name).join(format!("{container}.log"));
        // The containers have not ended, so a log would be followed for ever.
        let options = PodLogOptions {
            follow: false,
            ..options
        };
        let pieces = LogReader::new(file).options(options).read();
        Ok(pieces
            .map_ok(|piece| piece.bytes)
            .map_err(StreamError::other)
            .boxed())
    }
}
