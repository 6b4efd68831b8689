//! Counts the calls to the runtime, measures how long they take (`instrumented_services.go`), and opens a span for
//! each.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use metrics::{counter, histogram};
use tokio::time::Instant;
use tracing::Instrument as _;

use kubelet_cri::{Error, ImageService, ListedContainer, ListedSandbox, ListedStats, RuntimeService, v1};

type Result<T> = std::result::Result<T, Error>;
type Stream<T> = BoxStream<'static, Result<T>>;

/// A service whose calls count in `kubelet_runtime_operations_total`, `kubelet_runtime_operations_duration_seconds` and
/// `kubelet_runtime_operations_errors_total`, by `operation_type`. A dropped call does not count. Each call has a span
/// `runtime` with its `operation`.
pub(crate) struct Instrumented<S: ?Sized>(Arc<S>);

impl<S: ?Sized> Instrumented<S> {
    pub(crate) fn new(service: Arc<S>) -> Self {
        Self(service)
    }
}

async fn count<T>(operation: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
    let begun = Instant::now();
    let answer = call.instrument(tracing::debug_span!("runtime", operation)).await;
    counter!("kubelet_runtime_operations_total", "operation_type" => operation).increment(1);
    histogram!("kubelet_runtime_operations_duration_seconds", "operation_type" => operation)
        .record(begun.elapsed().as_secs_f64());
    if answer.is_err() {
        counter!("kubelet_runtime_operations_errors_total", "operation_type" => operation).increment(1);
    }
    answer
}

/// Passes on each call. A call with a name is counted, a call with a `-` is not.
macro_rules! instrument {
    ($service:ident: $($rest:tt)*) => {
        instrument!(@ $service [] [] $($rest)*);
    };
    (@ $service:ident [$($counted:tt)*] [$($plain:tt)*] $call:ident($request:ty) -> $answer:ty, - ; $($rest:tt)*) => {
        instrument!(@ $service [$($counted)*] [$($plain)* ($call, $request, $answer)] $($rest)*);
    };
    (@ $service:ident [$($counted:tt)*] [$($plain:tt)*] $call:ident($request:ty) -> $answer:ty, $operation:literal; $($rest:tt)*) => {
        instrument!(@ $service [$($counted)* ($call, $request, $answer, $operation)] [$($plain)*] $($rest)*);
    };
    (@ $service:ident [$(($counted:ident, $asked:ty, $given:ty, $operation:literal))*]
        [$(($call:ident, $request:ty, $answer:ty))*]) => {
        #[async_trait]
        impl $service for Instrumented<dyn $service> {
            $(async fn $counted(&self, request: $asked) -> Result<$given> {
                count($operation, self.0.$counted(request)).await
            })*
            $(async fn $call(&self, request: $request) -> Result<$answer> {
                self.0.$call(request).await
            })*
        }
    };
}

instrument! { RuntimeService:
    version(v1::VersionRequest) -> v1::VersionResponse, "version";
    run_pod_sandbox(v1::RunPodSandboxRequest) -> v1::RunPodSandboxResponse, "run_podsandbox";
    stop_pod_sandbox(v1::StopPodSandboxRequest) -> v1::StopPodSandboxResponse, "stop_podsandbox";
    remove_pod_sandbox(v1::RemovePodSandboxRequest) -> v1::RemovePodSandboxResponse, "remove_podsandbox";
    pod_sandbox_status(v1::PodSandboxStatusRequest) -> v1::PodSandboxStatusResponse, "podsandbox_status";
    list_pod_sandbox(v1::ListPodSandboxRequest) -> v1::ListPodSandboxResponse, "list_podsandbox";
    create_container(v1::CreateContainerRequest) -> v1::CreateContainerResponse, "create_container";
    start_container(v1::StartContainerRequest) -> v1::StartContainerResponse, "start_container";
    stop_container(v1::StopContainerRequest) -> v1::StopContainerResponse, "stop_container";
    remove_container(v1::RemoveContainerRequest) -> v1::RemoveContainerResponse, "remove_container";
    list_containers(v1::ListContainersRequest) -> v1::ListContainersResponse, "list_containers";
    container_status(v1::ContainerStatusRequest) -> v1::ContainerStatusResponse, "container_status";
    status(v1::StatusRequest) -> v1::StatusResponse, "status";
    stream_pod_sandboxes(v1::StreamPodSandboxesRequest) -> Stream<v1::StreamPodSandboxesResponse>, -;
    stream_containers(v1::StreamContainersRequest) -> Stream<v1::StreamContainersResponse>, -;
    listed_sandboxes(v1::ListPodSandboxRequest) -> Vec<ListedSandbox>, "list_podsandbox";
    listed_containers(v1::ListContainersRequest) -> Vec<ListedContainer>, "list_containers";
    update_container_resources(v1::UpdateContainerResourcesRequest) -> v1::UpdateContainerResourcesResponse,
        "update_container";
    reopen_container_log(v1::ReopenContainerLogRequest) -> v1::ReopenContainerLogResponse, "reopen_container_log";
    exec_sync(v1::ExecSyncRequest) -> v1::ExecSyncResponse, "exec_sync";
    exec(v1::ExecRequest) -> v1::ExecResponse, "exec";
    attach(v1::AttachRequest) -> v1::AttachResponse, "attach";
    port_forward(v1::PortForwardRequest) -> v1::PortForwardResponse, "port_forward";
    container_stats(v1::ContainerStatsRequest) -> v1::ContainerStatsResponse, "container_stats";
    list_container_stats(v1::ListContainerStatsRequest) -> v1::ListContainerStatsResponse, "list_container_stats";
    listed_stats(v1::ListContainerStatsRequest) -> Vec<ListedStats>, "list_container_stats";
    stream_container_stats(v1::StreamContainerStatsRequest) -> Stream<v1::StreamContainerStatsResponse>, -;
    pod_sandbox_stats(v1::PodSandboxStatsRequest) -> v1::PodSandboxStatsResponse, "podsandbox_stats";
    list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest) -> v1::ListPodSandboxStatsResponse,
        "list_podsandbox_stats";
    stream_pod_sandbox_stats(v1::StreamPodSandboxStatsRequest) -> Stream<v1::StreamPodSandboxStatsResponse>, -;
    update_runtime_config(v1::UpdateRuntimeConfigRequest) -> v1::UpdateRuntimeConfigResponse,
        "update_runtime_config";
    checkpoint_container(v1::CheckpointContainerRequest) -> v1::CheckpointContainerResponse,
        "checkpoint_container";
    get_container_events(v1::GetEventsRequest) -> Stream<v1::ContainerEventResponse>, "get_container_events";
    list_metric_descriptors(v1::ListMetricDescriptorsRequest) -> v1::ListMetricDescriptorsResponse,
        "list_metric_descriptors";
    list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest) -> v1::ListPodSandboxMetricsResponse,
        "list_podsandbox_metrics";
    stream_pod_sandbox_metrics(v1::StreamPodSandboxMetricsRequest) -> Stream<v1::StreamPodSandboxMetricsResponse>, -;
    runtime_config(v1::RuntimeConfigRequest) -> v1::RuntimeConfigResponse, "runtime_config";
    update_pod_sandbox_resources(v1::UpdatePodSandboxResourcesRequest) -> v1::UpdatePodSandboxResourcesResponse,
        "update_podsandbox_resources";
}

instrument! { ImageService:
    list_images(v1::ListImagesRequest) -> v1::ListImagesResponse, "list_images";
    image_status(v1::ImageStatusRequest) -> v1::ImageStatusResponse, "image_status";
    pull_image(v1::PullImageRequest) -> v1::PullImageResponse, "pull_image";
    remove_image(v1::RemoveImageRequest) -> v1::RemoveImageResponse, "remove_image";
    stream_images(v1::StreamImagesRequest) -> Stream<v1::StreamImagesResponse>, -;
    image_fs_info(v1::ImageFsInfoRequest) -> v1::ImageFsInfoResponse, "image_fs_info";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::Counted;
    use kubelet_cri::Code;

    /// It has no image.
    struct Empty;

    #[async_trait]
    impl ImageService for Empty {
        async fn list_images(&self, _: v1::ListImagesRequest) -> Result<v1::ListImagesResponse> {
            Ok(v1::ListImagesResponse::default())
        }
        async fn image_status(&self, _: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse> {
            Ok(v1::ImageStatusResponse::default())
        }
        async fn pull_image(&self, _: v1::PullImageRequest) -> Result<v1::PullImageResponse> {
            Err(Error::internal("PullImage", "", "no"))
        }
        async fn remove_image(&self, _: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse> {
            Ok(v1::RemoveImageResponse::default())
        }
    }

    #[test]
    fn calls_and_errors_count_by_operation() {
        let counted = Counted::of("kubelet_runtime_operations_", async {
            let service = Instrumented::<dyn ImageService>::new(Arc::new(Empty));
            for _ in 0..2 {
                service.list_images(Default::default()).await.unwrap();
            }
            let refused = service.pull_image(Default::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Internal);
            let missing = service.image_fs_info(Default::default()).await.unwrap_err();
            assert!(missing.is_unimplemented());
            assert!(service.stream_images(Default::default()).await.is_err());
        });
        let expected = [
            ("duration_seconds image_fs_info", 1),
            ("duration_seconds list_images", 2),
            ("duration_seconds pull_image", 1),
            ("errors_total image_fs_info", 1),
            ("errors_total pull_image", 1),
            ("total image_fs_info", 1),
            ("total list_images", 2),
            ("total pull_image", 1),
        ];
        assert_eq!(
            counted,
            expected.map(|(metric, count)| (metric.to_owned(), count))
        );
    }
}
