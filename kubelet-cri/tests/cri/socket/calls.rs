//! The calls of the protocol, one row each, for macros that need all of them.

/// Passes the rows of `RuntimeService` to the macro `$make`.
macro_rules! runtime_calls {
    ($make:ident) => {
        $make! { RuntimeService
            unary version Version(VersionRequest) -> VersionResponse;
            unary run_pod_sandbox RunPodSandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
            unary stop_pod_sandbox StopPodSandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
            unary remove_pod_sandbox RemovePodSandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
            unary pod_sandbox_status PodSandboxStatus(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
            unary list_pod_sandbox ListPodSandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
            stream stream_pod_sandboxes StreamPodSandboxes(StreamPodSandboxesRequest) -> StreamPodSandboxesResponse;
            unary create_container CreateContainer(CreateContainerRequest) -> CreateContainerResponse;
            unary start_container StartContainer(StartContainerRequest) -> StartContainerResponse;
            unary stop_container StopContainer(StopContainerRequest) -> StopContainerResponse;
            unary remove_container RemoveContainer(RemoveContainerRequest) -> RemoveContainerResponse;
            unary list_containers ListContainers(ListContainersRequest) -> ListContainersResponse;
            stream stream_containers StreamContainers(StreamContainersRequest) -> StreamContainersResponse;
            unary container_status ContainerStatus(ContainerStatusRequest) -> ContainerStatusResponse;
            unary update_container_resources UpdateContainerResources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
            unary reopen_container_log ReopenContainerLog(ReopenContainerLogRequest) -> ReopenContainerLogResponse;
            unary exec_sync ExecSync(ExecSyncRequest) -> ExecSyncResponse;
            unary exec Exec(ExecRequest) -> ExecResponse;
            unary attach Attach(AttachRequest) -> AttachResponse;
            unary port_forward PortForward(PortForwardRequest) -> PortForwardResponse;
            unary container_stats ContainerStats(ContainerStatsRequest) -> ContainerStatsResponse;
            unary list_container_stats ListContainerStats(ListContainerStatsRequest) -> ListContainerStatsResponse;
            stream stream_container_stats StreamContainerStats(StreamContainerStatsRequest) -> StreamContainerStatsResponse;
            unary pod_sandbox_stats PodSandboxStats(PodSandboxStatsRequest) -> PodSandboxStatsResponse;
            unary list_pod_sandbox_stats ListPodSandboxStats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse;
            stream stream_pod_sandbox_stats StreamPodSandboxStats(StreamPodSandboxStatsRequest) -> StreamPodSandboxStatsResponse;
            unary update_runtime_config UpdateRuntimeConfig(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse;
            unary status Status(StatusRequest) -> StatusResponse;
            unary checkpoint_container CheckpointContainer(CheckpointContainerRequest) -> CheckpointContainerResponse;
            stream get_container_events GetContainerEvents(GetEventsRequest) -> ContainerEventResponse;
            unary list_metric_descriptors ListMetricDescriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse;
            unary list_pod_sandbox_metrics ListPodSandboxMetrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse;
            stream stream_pod_sandbox_metrics StreamPodSandboxMetrics(StreamPodSandboxMetricsRequest) -> StreamPodSandboxMetricsResponse;
            unary runtime_config RuntimeConfig(RuntimeConfigRequest) -> RuntimeConfigResponse;
            unary update_pod_sandbox_resources UpdatePodSandboxResources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse;
        }
    };
}

/// Passes the rows of `ImageService` to the macro `$make`.
macro_rules! image_calls {
    ($make:ident) => {
        $make! { ImageService
            unary list_images ListImages(ListImagesRequest) -> ListImagesResponse;
            stream stream_images StreamImages(StreamImagesRequest) -> StreamImagesResponse;
            unary image_status ImageStatus(ImageStatusRequest) -> ImageStatusResponse;
            unary pull_image PullImage(PullImageRequest) -> PullImageResponse;
            unary remove_image RemoveImage(RemoveImageRequest) -> RemoveImageResponse;
            unary image_fs_info ImageFsInfo(ImageFsInfoRequest) -> ImageFsInfoResponse;
        }
    };
}

pub(crate) use {image_calls, runtime_calls};
