//! Implements the generated service traits with ours. There is one row for each call of the protocol.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::status;
use crate::error::Error;
use crate::services::{ImageService, RuntimeService};
use crate::v1::grpc_server::image_service_server::ImageService as ImageRpc;
use crate::v1::grpc_server::runtime_service_server::RuntimeService as RuntimeRpc;
use crate::v1::*;

/// Answers the calls of all connections.
pub(super) struct Calls {
    runtime: Arc<dyn RuntimeService>,
    images: Arc<dyn ImageService>,
    shutdown: CancellationToken,
}

impl Calls {
    pub(super) fn new(
        runtime: Arc<dyn RuntimeService>,
        images: Arc<dyn ImageService>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            runtime,
            images,
            shutdown,
        }
    }

    /// Passes on a stream until its end, its first error, or the shutdown: a stream that never ends would delay the
    /// shutdown.
    fn stream<T: Send + 'static>(
        &self,
        items: BoxStream<'static, Result<T, Error>>,
    ) -> BoxStream<'static, Result<T, Status>> {
        let shutdown = self.shutdown.clone();
        stream::unfold(Some(items), move |items| {
            let shutdown = shutdown.clone();
            async move {
                let mut items = items?;
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => Some((Err(Status::unavailable("the server is shutting down")), None)),
                    item = items.next() => match item? {
                        Ok(item) => Some((Ok(item), Some(items))),
                        Err(error) => Some((Err(status(&error)), None)),
                    },
                }
            }
        })
        .boxed()
    }
}

macro_rules! service {
    (
        $service:ident by $field:ident
        unary { $($unary:ident $unary_call:ident($unary_request:ident) -> $unary_response:ident;)* }
        streams { $($stream:ident $stream_call:ident($stream_request:ident) -> $stream_response:ident as $stream_type:ident;)* }
    ) => {
        #[async_trait::async_trait]
        impl $service for Calls {
            $(
                async fn $unary(
                    &self,
                    request: tonic::Request<$unary_request>,
                ) -> Result<tonic::Response<$unary_response>, Status> {
                    let answer = self.$field.$unary(request.into_inner()).await;
                    answer.map(tonic::Response::new).map_err(|error| status(&error))
                }
            )*
            $(
                type $stream_type = BoxStream<'static, Result<$stream_response, Status>>;

                async fn $stream(
                    &self,
                    request: tonic::Request<$stream_request>,
                ) -> Result<tonic::Response<Self::$stream_type>, Status> {
                    let answer = self.$field.$stream(request.into_inner()).await;
                    answer.map(|items| tonic::Response::new(self.stream(items))).map_err(|error| status(&error))
                }
            )*
        }
    };
}

service!(
    RuntimeRpc by runtime
    unary {
        version Version(VersionRequest) -> VersionResponse;
        run_pod_sandbox RunPodSandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
        stop_pod_sandbox StopPodSandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
        remove_pod_sandbox RemovePodSandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
        pod_sandbox_status PodSandboxStatus(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
        list_pod_sandbox ListPodSandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
        create_container CreateContainer(CreateContainerRequest) -> CreateContainerResponse;
        start_container StartContainer(StartContainerRequest) -> StartContainerResponse;
        stop_container StopContainer(StopContainerRequest) -> StopContainerResponse;
        remove_container RemoveContainer(RemoveContainerRequest) -> RemoveContainerResponse;
        list_containers ListContainers(ListContainersRequest) -> ListContainersResponse;
        container_status ContainerStatus(ContainerStatusRequest) -> ContainerStatusResponse;
        update_container_resources UpdateContainerResources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
        reopen_container_log ReopenContainerLog(ReopenContainerLogRequest) -> ReopenContainerLogResponse;
        exec_sync ExecSync(ExecSyncRequest) -> ExecSyncResponse;
        exec Exec(ExecRequest) -> ExecResponse;
        attach Attach(AttachRequest) -> AttachResponse;
        port_forward PortForward(PortForwardRequest) -> PortForwardResponse;
        container_stats ContainerStats(ContainerStatsRequest) -> ContainerStatsResponse;
        list_container_stats ListContainerStats(ListContainerStatsRequest) -> ListContainerStatsResponse;
        pod_sandbox_stats PodSandboxStats(PodSandboxStatsRequest) -> PodSandboxStatsResponse;
        list_pod_sandbox_stats ListPodSandboxStats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse;
        update_runtime_config UpdateRuntimeConfig(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse;
        status Status(StatusRequest) -> StatusResponse;
        checkpoint_container CheckpointContainer(CheckpointContainerRequest) -> CheckpointContainerResponse;
        list_metric_descriptors ListMetricDescriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse;
        list_pod_sandbox_metrics ListPodSandboxMetrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse;
        runtime_config RuntimeConfig(RuntimeConfigRequest) -> RuntimeConfigResponse;
        update_pod_sandbox_resources UpdatePodSandboxResources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse;
    }
    streams {
        stream_pod_sandboxes StreamPodSandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesResponse as StreamPodSandboxesStream;
        stream_containers StreamContainers(StreamContainersRequest) -> StreamContainersResponse as StreamContainersStream;
        stream_container_stats StreamContainerStats(StreamContainerStatsRequest) -> StreamContainerStatsResponse as StreamContainerStatsStream;
        stream_pod_sandbox_stats StreamPodSandboxStats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse as StreamPodSandboxStatsStream;
        get_container_events GetContainerEvents(GetEventsRequest) -> ContainerEventResponse as GetContainerEventsStream;
        stream_pod_sandbox_metrics StreamPodSandboxMetrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse as StreamPodSandboxMetricsStream;
    }
);

service!(
    ImageRpc by images
    unary {
        list_images ListImages(ListImagesRequest) -> ListImagesResponse;
        image_status ImageStatus(ImageStatusRequest) -> ImageStatusResponse;
        pull_image PullImage(PullImageRequest) -> PullImageResponse;
        remove_image RemoveImage(RemoveImageRequest) -> RemoveImageResponse;
        image_fs_info ImageFsInfo(ImageFsInfoRequest) -> ImageFsInfoResponse;
    }
    streams {
        stream_images StreamImages(StreamImagesRequest) -> StreamImagesResponse as StreamImagesStream;
    }
);
