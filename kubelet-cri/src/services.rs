//! The two services of CRI v1 as traits: what a kubelet calls.

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::error::Error;
use crate::{ListedContainer, ListedSandbox, ListedStats, v1};

/// The result of a call.
type Result<T> = std::result::Result<T, Error>;

/// The stream of a streaming call: messages until the end or the first error. Dropping it ends the call.
type Stream<T> = BoxStream<'static, Result<T>>;

/// The API version that a kubelet sends in a `Version` request, and that containerd sends back.
pub const KUBELET_API_VERSION: &str = "0.1.0";

/// Sandboxes, containers and the runtime itself: `runtime.v1.RuntimeService`.
///
/// The gRPC client implements it (feature `client`), and so does any runtime written in Rust: in process, or behind a
/// socket with the feature `server`. In the kubelet this is `cri-api`'s `RuntimeService`.
///
/// The methods without a body are required: they are the life cycle of sandboxes and containers. All others return
/// [`Error::unimplemented`] by default. Callers check for it with [`Error::is_unimplemented`].
///
/// Many tasks call an implementation at once. Stop and remove are idempotent: they succeed if the object does not exist
/// any more. A caller may drop a call at any await, for example at its deadline, and reads the state before it tries
/// again. So an object that was only partly created must appear in the lists, or be removed. The error of a streaming
/// call may come from the call itself or as the first item of the stream.
#[async_trait]
pub trait RuntimeService: Send + Sync {
    /// `Version`: returns the runtime's name and version, and the version of the API.
    async fn version(&self, request: v1::VersionRequest) -> Result<v1::VersionResponse>;

    /// `RunPodSandbox`: creates and starts a sandbox; on success it is ready.
    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse>;

    /// `StopPodSandbox`: stops the sandbox, releases its network and kills all containers that still run in it.
    /// Idempotent.
    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse>;

    /// `RemovePodSandbox`: removes the sandbox with all its containers, running ones too. Idempotent.
    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse>;

    /// `PodSandboxStatus`: status of one sandbox; NotFound if there is none with this id.
    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse>;

    /// `ListPodSandbox`: sandboxes that match the filter.
    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse>;

    /// `CreateContainer`: creates a container in a sandbox, without starting it.
    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse>;

    /// `StartContainer`: starts a created container.
    async fn start_container(&self, request: v1::StartContainerRequest)
    -> Result<v1::StartContainerResponse>;

    /// `StopContainer`: stops a container: its stop signal, then SIGKILL after `timeout` seconds. Idempotent.
    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse>;

    /// `RemoveContainer`: removes a container, killing it first if it runs. Idempotent.
    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse>;

    /// `ListContainers`: containers that match the filter.
    async fn list_containers(&self, request: v1::ListContainersRequest)
    -> Result<v1::ListContainersResponse>;

    /// `ContainerStatus`: status of one container; NotFound if there is none with this id.
    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse>;

    /// `Status`: health and features of the runtime.
    async fn status(&self, request: v1::StatusRequest) -> Result<v1::StatusResponse>;

    /// `StreamPodSandboxes`: `ListPodSandbox` in batches, for answers larger than one message.
    async fn stream_pod_sandboxes(
        &self,
        _request: v1::StreamPodSandboxesRequest,
    ) -> Result<Stream<v1::StreamPodSandboxesResponse>> {
        Err(Error::unimplemented("StreamPodSandboxes"))
    }

    /// `StreamContainers`: `ListContainers` in batches.
    async fn stream_containers(
        &self,
        _request: v1::StreamContainersRequest,
    ) -> Result<Stream<v1::StreamContainersResponse>> {
        Err(Error::unimplemented("StreamContainers"))
    }

    /// [`list_pod_sandbox`](Self::list_pod_sandbox) with only the fields that a relist needs. The call is the same; the
    /// client decodes less of its answer.
    async fn listed_sandboxes(&self, request: v1::ListPodSandboxRequest) -> Result<Vec<ListedSandbox>> {
        let listed = self.list_pod_sandbox(request).await?.items;
        Ok(listed.into_iter().map(Into::into).collect())
    }

    /// [`list_containers`](Self::list_containers) with only the fields that a relist needs. The call is the same; the
    /// client decodes less of its answer.
    async fn listed_containers(&self, request: v1::ListContainersRequest) -> Result<Vec<ListedContainer>> {
        let listed = self.list_containers(request).await?.containers;
        Ok(listed.into_iter().map(Into::into).collect())
    }

    /// [`list_container_stats`](Self::list_container_stats) without labels and annotations. The call is the same; the client
    /// decodes less of its answer.
    async fn listed_stats(&self, request: v1::ListContainerStatsRequest) -> Result<Vec<ListedStats>> {
        let listed = self.list_container_stats(request).await?.stats;
        Ok(listed.into_iter().map(Into::into).collect())
    }

    /// `UpdateContainerResources`: changes the resources of a container in place.
    async fn update_container_resources(
        &self,
        _request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse> {
        Err(Error::unimplemented("UpdateContainerResources"))
    }

    /// `ReopenContainerLog`: reopens the log file after a rotation. Fails for a stopped container.
    async fn reopen_container_log(
        &self,
        _request: v1::ReopenContainerLogRequest,
    ) -> Result<v1::ReopenContainerLogResponse> {
        Err(Error::unimplemented("ReopenContainerLog"))
    }

    /// `ExecSync`: runs a command in a container and returns its output and exit code.
    async fn exec_sync(&self, _request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        Err(Error::unimplemented("ExecSync"))
    }

    /// `Exec`: prepares a streaming endpoint that runs a command.
    async fn exec(&self, _request: v1::ExecRequest) -> Result<v1::ExecResponse> {
        Err(Error::unimplemented("Exec"))
    }

    /// `Attach`: prepares a streaming endpoint attached to the main process.
    async fn attach(&self, _request: v1::AttachRequest) -> Result<v1::AttachResponse> {
        Err(Error::unimplemented("Attach"))
    }

    /// `PortForward`: prepares a streaming endpoint that forwards ports of the sandbox.
    async fn port_forward(&self, _request: v1::PortForwardRequest) -> Result<v1::PortForwardResponse> {
        Err(Error::unimplemented("PortForward"))
    }

    /// `ContainerStats`: usage of one container.
    async fn container_stats(
        &self,
        _request: v1::ContainerStatsRequest,
    ) -> Result<v1::ContainerStatsResponse> {
        Err(Error::unimplemented("ContainerStats"))
    }

    /// `ListContainerStats`: usage of the running containers that match the filter.
    async fn list_container_stats(
        &self,
        _request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse> {
        Err(Error::unimplemented("ListContainerStats"))
    }

    /// `StreamContainerStats`: `ListContainerStats` in batches.
    async fn stream_container_stats(
        &self,
        _request: v1::StreamContainerStatsRequest,
    ) -> Result<Stream<v1::StreamContainerStatsResponse>> {
        Err(Error::unimplemented("StreamContainerStats"))
    }

    /// `PodSandboxStats`: usage of one sandbox; NotFound if there is none with this id.
    async fn pod_sandbox_stats(
        &self,
        _request: v1::PodSandboxStatsRequest,
    ) -> Result<v1::PodSandboxStatsResponse> {
        Err(Error::unimplemented("PodSandboxStats"))
    }

    /// `ListPodSandboxStats`: usage of the sandboxes that match the filter.
    async fn list_pod_sandbox_stats(
        &self,
        _request: v1::ListPodSandboxStatsRequest,
    ) -> Result<v1::ListPodSandboxStatsResponse> {
        Err(Error::unimplemented("ListPodSandboxStats"))
    }

    /// `StreamPodSandboxStats`: `ListPodSandboxStats` in batches.
    async fn stream_pod_sandbox_stats(
        &self,
        _request: v1::StreamPodSandboxStatsRequest,
    ) -> Result<Stream<v1::StreamPodSandboxStatsResponse>> {
        Err(Error::unimplemented("StreamPodSandboxStats"))
    }

    /// `UpdateRuntimeConfig`: passes settings of the node to the runtime, such as the pod CIDR.
    async fn update_runtime_config(
        &self,
        _request: v1::UpdateRuntimeConfigRequest,
    ) -> Result<v1::UpdateRuntimeConfigResponse> {
        Err(Error::unimplemented("UpdateRuntimeConfig"))
    }

    /// `CheckpointContainer`: writes a checkpoint of a running container to a file.
    async fn checkpoint_container(
        &self,
        _request: v1::CheckpointContainerRequest,
    ) -> Result<v1::CheckpointContainerResponse> {
        Err(Error::unimplemented("CheckpointContainer"))
    }

    /// `GetContainerEvents`: streams container life cycle events from now on; ends only with the connection.
    ///
    /// Events are hints: some may be lost or come twice.
    async fn get_container_events(
        &self,
        _request: v1::GetEventsRequest,
    ) -> Result<Stream<v1::ContainerEventResponse>> {
        Err(Error::unimplemented("GetContainerEvents"))
    }

    /// `ListMetricDescriptors`: describes the metrics that `ListPodSandboxMetrics` will report.
    async fn list_metric_descriptors(
        &self,
        _request: v1::ListMetricDescriptorsRequest,
    ) -> Result<v1::ListMetricDescriptorsResponse> {
        Err(Error::unimplemented("ListMetricDescriptors"))
    }

    /// `ListPodSandboxMetrics`: metrics of all sandboxes.
    async fn list_pod_sandbox_metrics(
        &self,
        _request: v1::ListPodSandboxMetricsRequest,
    ) -> Result<v1::ListPodSandboxMetricsResponse> {
        Err(Error::unimplemented("ListPodSandboxMetrics"))
    }

    /// `StreamPodSandboxMetrics`: `ListPodSandboxMetrics` in batches.
    async fn stream_pod_sandbox_metrics(
        &self,
        _request: v1::StreamPodSandboxMetricsRequest,
    ) -> Result<Stream<v1::StreamPodSandboxMetricsResponse>> {
        Err(Error::unimplemented("StreamPodSandboxMetrics"))
    }

    /// `RuntimeConfig`: configuration of the runtime that the kubelet must follow, such as the cgroup driver.
    async fn runtime_config(&self, _request: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse> {
        Err(Error::unimplemented("RuntimeConfig"))
    }

    /// `UpdatePodSandboxResources`: passes the resources of the whole pod to the runtime, after a resize.
    async fn update_pod_sandbox_resources(
        &self,
        _request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse> {
        Err(Error::unimplemented("UpdatePodSandboxResources"))
    }
}

/// Images of containers: `runtime.v1.ImageService`.
///
/// As with [`RuntimeService`], the methods without a body are required. A runtime without images answers `ImageStatus`
/// with an image of the requested name, so that a kubelet does not pull. A kubelet requires an `id`, and a `size` other
/// than 0.
#[async_trait]
pub trait ImageService: Send + Sync {
    /// `ListImages`: images that match the filter.
    async fn list_images(&self, request: v1::ListImagesRequest) -> Result<v1::ListImagesResponse>;

    /// `ImageStatus`: one image; the answer has no `image` if it does not exist.
    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse>;

    /// `PullImage`: pulls an image with the given credentials and returns its reference for `CreateContainer`.
    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse>;

    /// `RemoveImage`: removes an image. Idempotent.
    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse>;

    /// `StreamImages`: `ListImages` in batches.
    async fn stream_images(
        &self,
        _request: v1::StreamImagesRequest,
    ) -> Result<Stream<v1::StreamImagesResponse>> {
        Err(Error::unimplemented("StreamImages"))
    }

    /// `ImageFsInfo`: usage of the filesystems that hold images and containers.
    async fn image_fs_info(&self, _request: v1::ImageFsInfoRequest) -> Result<v1::ImageFsInfoResponse> {
        Err(Error::unimplemented("ImageFsInfo"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both traits can be used as objects.
    #[allow(dead_code)]
    fn object_safe(_: &dyn RuntimeService, _: &dyn ImageService) {}
}
