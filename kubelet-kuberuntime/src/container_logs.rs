//! The logs of containers, by their ids (`GetContainerLogs`).

use kubelet_core::ContainerId;

use crate::Error;
use crate::logs::{LogChunks, LogReader, PodLogOptions};
use crate::runtime::CriRuntime;
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
        let log_path = match status.status {
            Some(status) => status.log_path,
            None => {
                let message = "container status is nil".to_owned();
                let call = "ContainerStatus";
                let id = id.to_owned();
                return Err(kubelet_cri::Error::InvalidResponse { call, id, message }.into());
            }
        };
        let reader = LogReader::new(log_path)
            .options(options)
            .container(self.runtime.clone(), id)
            .clock(self.clock)
            .disk(self.node.disk);
        Ok(reader.read())
    }
}
