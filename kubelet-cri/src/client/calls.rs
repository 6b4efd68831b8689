//! Implements the two services over the connection. There is one row for each call of the protocol.

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::CriClient;
use super::stream_lists::StreamedList;
use crate::error::Error;
use crate::listed::{ListedContainer, ListedSandbox, ListedStats};
use crate::services::{ImageService, RuntimeService};
use crate::v1::*;

/// Implements a service with the stub in the field of that name.
macro_rules! service {
    ($service:ident by $stub:ident { $($kind:ident $method:ident $call:ident($request:ident) -> $response:ident;)* }) => {
        #[async_trait]
        impl $service for CriClient {
            $(
                async fn $method(&self, request: $request) -> Result<service!(@gives $kind $response), Error> {
                    service!(@call $kind self, $stub, $method, $call, request)
                }
            )*
        }
    };
    (@gives unary $response:ident) => { $response };
    (@gives list $response:ident) => { $response };
    (@gives listed $item:ident) => { Vec<$item> };
    (@gives $stream:ident $response:ident) => { BoxStream<'static, Result<$response, Error>> };
    (@call unary $self:ident, $stub:ident, $method:ident, $call:ident, $request:ident) => {{
        let mut stub = $self.$stub.clone();
        $self.unary(stringify!($call), $request, |request| async move { stub.$method(request).await }).await
    }};
    (@call list $self:ident, $stub:ident, $method:ident, $call:ident, $request:ident) => {{
        match $self.streamed(&$request).await? {
            Some(items) => Ok($request.response(items)),
            None => service!(@call unary $self, $stub, $method, $call, $request),
        }
    }};
    (@call listed $self:ident, $stub:ident, $method:ident, $call:ident, $request:ident) => {
        match $self.streamed(&$request).await? {
            Some(items) => Ok(items.into_iter().map(Into::into).collect()),
            None => $self.listed(stringify!($call), $request).await,
        }
    };
    (@call stream $self:ident, $stub:ident, $method:ident, $call:ident, $request:ident) => {{
        let mut stub = $self.$stub.clone();
        $self.list_stream(stringify!($call), $request, |request| async move { stub.$method(request).await }).await
    }};
    (@call events $self:ident, $stub:ident, $method:ident, $call:ident, $request:ident) => {
        $self.events($request).await
    };
}

service!(RuntimeService by runtime {
    unary version Version(VersionRequest) -> VersionResponse;
    unary run_pod_sandbox RunPodSandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
    unary stop_pod_sandbox StopPodSandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
    unary remove_pod_sandbox RemovePodSandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
    unary pod_sandbox_status PodSandboxStatus(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
    list list_pod_sandbox ListPodSandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
    listed listed_sandboxes ListPodSandbox(ListPodSandboxRequest) -> ListedSandbox;
    stream stream_pod_sandboxes StreamPodSandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesResponse;
    unary create_container CreateContainer(CreateContainerRequest) -> CreateContainerResponse;
    unary start_container StartContainer(StartContainerRequest) -> StartContainerResponse;
    unary stop_container StopContainer(StopContainerRequest) -> StopContainerResponse;
    unary remove_container RemoveContainer(RemoveContainerRequest) -> RemoveContainerResponse;
    list list_containers ListContainers(ListContainersRequest) -> ListContainersResponse;
    listed listed_containers ListContainers(ListContainersRequest) -> ListedContainer;
    stream stream_containers StreamContainers(StreamContainersRequest) -> StreamContainersResponse;
    unary container_status ContainerStatus(ContainerStatusRequest) -> ContainerStatusResponse;
    unary update_container_resources UpdateContainerResources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
    unary reopen_container_log ReopenContainerLog(ReopenContainerLogRequest) -> ReopenContainerLogResponse;
    unary exec_sync ExecSync(ExecSyncRequest) -> ExecSyncResponse;
    unary exec Exec(ExecRequest) -> ExecResponse;
    unary attach Attach(AttachRequest) -> AttachResponse;
    unary port_forward PortForward(PortForwardRequest) -> PortForwardResponse;
    unary container_stats ContainerStats(ContainerStatsRequest) -> ContainerStatsResponse;
    list list_container_stats ListContainerStats(ListContainerStatsRequest) -> ListContainerStatsResponse;
    listed listed_stats ListContainerStats(ListContainerStatsRequest) -> ListedStats;
    stream stream_container_stats StreamContainerStats(StreamContainerStatsRequest) -> StreamContainerStatsResponse;
    unary pod_sandbox_stats PodSandboxStats(PodSandboxStatsRequest) -> PodSandboxStatsResponse;
    list list_pod_sandbox_stats ListPodSandboxStats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse;
    stream stream_pod_sandbox_stats StreamPodSandboxStats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse;
    unary update_runtime_config UpdateRuntimeConfig(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse;
    unary status Status(StatusRequest) -> StatusResponse;
    unary checkpoint_container CheckpointContainer(CheckpointContainerRequest) -> CheckpointContainerResponse;
    events get_container_events GetContainerEvents(GetEventsRequest) -> ContainerEventResponse;
    unary list_metric_descriptors ListMetricDescriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse;
    list list_pod_sandbox_metrics ListPodSandboxMetrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse;
    stream stream_pod_sandbox_metrics StreamPodSandboxMetrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse;
    unary runtime_config RuntimeConfig(RuntimeConfigRequest) -> RuntimeConfigResponse;
    unary update_pod_sandbox_resources UpdatePodSandboxResources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse;
});

service!(ImageService by images {
    list list_images ListImages(ListImagesRequest) -> ListImagesResponse;
    stream stream_images StreamImages(StreamImagesRequest) -> StreamImagesResponse;
    unary image_status ImageStatus(ImageStatusRequest) -> ImageStatusResponse;
    unary pull_image PullImage(PullImageRequest) -> PullImageResponse;
    unary remove_image RemoveImage(RemoveImageRequest) -> RemoveImageResponse;
    unary image_fs_info ImageFsInfo(ImageFsInfoRequest) -> ImageFsInfoResponse;
});
