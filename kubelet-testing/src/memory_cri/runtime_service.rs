//! `RuntimeService`

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use kubelet_cri::{Code, Error, RuntimeService, v1};
use tokio::time::Instant;

use super::lists::batches;
use super::stats::info;
use super::{Call, MemoryCri, Subject, events};

type Result<T> = std::result::Result<T, Error>;
type Stream<T> = BoxStream<'static, Result<T>>;

impl MemoryCri {
    fn about_sandbox(&self, id: &str) -> Subject {
        self.inner.state.lock().sandbox_subject(id)
    }

    fn about_container(&self, id: &str) -> Subject {
        self.inner.state.lock().container_subject(id)
    }

    /// A call without work, to check that the runtime answers. It has latency and faults like any other.
    #[cfg(feature = "simulation")]
    pub(crate) async fn ask(&self, call: Call) -> Result<()> {
        self.look(call, Subject::default(), &(), || Ok(())).await
    }

    /// A call that does its work at once, after its latency.
    async fn look<Q, A>(
        &self,
        call: Call,
        about: Subject,
        request: &Q,
        work: impl FnOnce() -> Result<A> + Send,
    ) -> Result<A>
    where
        Q: Clone + Send + Sync + 'static,
    {
        self.serve(call, about, request, async {
            self.latency(call).await;
            work()
        })
        .await
    }
}

#[async_trait]
impl RuntimeService for MemoryCri {
    async fn version(&self, request: v1::VersionRequest) -> Result<v1::VersionResponse> {
        let inner = &self.inner;
        self.look(Call::Version, Subject::default(), &request, || {
            Ok(v1::VersionResponse {
                // kubeRuntimeAPIVersion of the kubelet, as containerd returns it.
                version: "0.1.0".to_owned(),
                runtime_name: inner.name.clone(),
                runtime_version: inner.version.clone(),
                runtime_api_version: "v1".to_owned(),
            })
        })
        .await
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse> {
        let metadata = request
            .config
            .as_ref()
            .and_then(|config| config.metadata.as_ref());
        let about = Subject::sandbox(metadata);
        self.serve(Call::RunPodSandbox, about, &request, async {
            let pod_sandbox_id = self.run_sandbox(&request).await?;
            Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
        })
        .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse> {
        let call = Call::StopPodSandbox;
        let about = self.about_sandbox(&request.pod_sandbox_id);
        self.serve(call, about, &request, async {
            let found = self
                .settled(Instant::now())
                .sandboxes
                .find(&request.pod_sandbox_id);
            if let Ok(number) = found {
                self.stop_sandbox(call, number).await;
            }
            Ok(v1::StopPodSandboxResponse {})
        })
        .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse> {
        let about = self.about_sandbox(&request.pod_sandbox_id);
        self.serve(Call::RemovePodSandbox, about, &request, async {
            let found = self
                .settled(Instant::now())
                .sandboxes
                .find(&request.pod_sandbox_id);
            if let Ok(number) = found {
                self.remove_sandbox(number).await?;
            }
            Ok(v1::RemovePodSandboxResponse {})
        })
        .await
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse> {
        let call = Call::PodSandboxStatus;
        let about = self.about_sandbox(&request.pod_sandbox_id);
        self.look(call, about, &request, || {
            let state = self.settled(Instant::now());
            let id = &request.pod_sandbox_id;
            let number = state.sandboxes.find(id).map_err(|missing| {
                let message = format!("an error occurred when try to find sandbox: {missing}");
                Error::call(missing.code(), call.name(), id, message)
            })?;
            let status = state.sandboxes.get(number).map(|sandbox| sandbox.status());
            Ok(v1::PodSandboxStatusResponse {
                status,
                info: info(request.verbose, "{}".to_owned()),
                ..Default::default()
            })
        })
        .await
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse> {
        self.look(Call::ListPodSandbox, Subject::default(), &request, || {
            let items = self.list_sandboxes(request.filter.as_ref());
            Ok(v1::ListPodSandboxResponse { items })
        })
        .await
    }

    async fn stream_pod_sandboxes(
        &self,
        request: v1::StreamPodSandboxesRequest,
    ) -> Result<Stream<v1::StreamPodSandboxesResponse>> {
        self.look(Call::StreamPodSandboxes, Subject::default(), &request, || {
            let all = self.list_sandboxes(request.filter.as_ref());
            Ok(batches(all, |pod_sandboxes| v1::StreamPodSandboxesResponse {
                pod_sandboxes,
            }))
        })
        .await
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse> {
        let sandbox = self.about_sandbox(&request.pod_sandbox_id);
        let metadata = request.config.as_ref().and_then(|config| config.metadata.clone());
        let metadata = metadata.unwrap_or_default();
        let about = Subject {
            container: metadata.name,
            attempt: metadata.attempt,
            ..sandbox
        };
        self.serve(Call::CreateContainer, about, &request, async {
            let container_id = self.create(&request).await?;
            Ok(v1::CreateContainerResponse { container_id })
        })
        .await
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> Result<v1::StartContainerResponse> {
        let about = self.about_container(&request.container_id);
        self.serve(Call::StartContainer, about, &request, async {
            self.start(&request.container_id).await?;
            Ok(v1::StartContainerResponse {})
        })
        .await
    }

    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse> {
        let about = self.about_container(&request.container_id);
        self.serve(Call::StopContainer, about, &request, async {
            self.stop(&request.container_id, request.timeout).await;
            Ok(v1::StopContainerResponse {})
        })
        .await
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse> {
        let about = self.about_container(&request.container_id);
        self.serve(Call::RemoveContainer, about, &request, async {
            self.remove(&request.container_id).await?;
            Ok(v1::RemoveContainerResponse {})
        })
        .await
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> Result<v1::ListContainersResponse> {
        self.look(Call::ListContainers, Subject::default(), &request, || {
            let containers = self.list_of_containers(request.filter.as_ref());
            Ok(v1::ListContainersResponse { containers })
        })
        .await
    }

    async fn stream_containers(
        &self,
        request: v1::StreamContainersRequest,
    ) -> Result<Stream<v1::StreamContainersResponse>> {
        self.look(Call::StreamContainers, Subject::default(), &request, || {
            let all = self.list_of_containers(request.filter.as_ref());
            Ok(batches(all, |containers| v1::StreamContainersResponse {
                containers,
            }))
        })
        .await
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse> {
        let call = Call::ContainerStatus;
        let about = self.about_container(&request.container_id);
        self.look(call, about, &request, || {
            let state = self.settled(Instant::now());
            let number = self.find(&state, call.name(), &request.container_id, |id| {
                format!("an error occurred when try to find container {id:?}: ")
            })?;
            let container = state.containers.get(number);
            let pid = container
                .filter(|container| container.is_running())
                .map_or(0, |c| c.pid);
            Ok(v1::ContainerStatusResponse {
                status: container.map(|container| container.status(&state.images)),
                info: info(request.verbose, format!("{{\"pid\":{pid}}}")),
            })
        })
        .await
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse> {
        let about = self.about_container(&request.container_id);
        self.look(Call::UpdateContainerResources, about, &request, || {
            self.update(&request)?;
            Ok(v1::UpdateContainerResourcesResponse {})
        })
        .await
    }

    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> Result<v1::ReopenContainerLogResponse> {
        let about = self.about_container(&request.container_id);
        self.look(Call::ReopenContainerLog, about, &request, || {
            self.reopen_log(&request.container_id)?;
            Ok(v1::ReopenContainerLogResponse {})
        })
        .await
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        let about = self.about_container(&request.container_id);
        self.serve(Call::ExecSync, about, &request, self.exec_in(&request))
            .await
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse> {
        let call = Call::Exec;
        let about = self.about_container(&request.container_id);
        self.look(call, about, &request, || {
            let url = self.exec_url(&request)?;
            Ok(v1::ExecResponse { url })
        })
        .await
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<v1::AttachResponse> {
        let call = Call::Attach;
        let about = self.about_container(&request.container_id);
        self.look(call, about, &request, || {
            let url = self.attach_url(&request)?;
            Ok(v1::AttachResponse { url })
        })
        .await
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<v1::PortForwardResponse> {
        let call = Call::PortForward;
        let about = self.about_sandbox(&request.pod_sandbox_id);
        self.look(call, about, &request, || {
            let url = self.port_forward_url(&request)?;
            Ok(v1::PortForwardResponse { url })
        })
        .await
    }

    async fn container_stats(
        &self,
        request: v1::ContainerStatsRequest,
    ) -> Result<v1::ContainerStatsResponse> {
        let about = self.about_container(&request.container_id);
        self.look(Call::ContainerStats, about, &request, || {
            let stats = Some(self.container_stats_of(&request.container_id)?);
            Ok(v1::ContainerStatsResponse { stats })
        })
        .await
    }

    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse> {
        self.look(Call::ListContainerStats, Subject::default(), &request, || {
            let stats = self.all_container_stats(request.filter.as_ref());
            Ok(v1::ListContainerStatsResponse { stats })
        })
        .await
    }

    async fn stream_container_stats(
        &self,
        request: v1::StreamContainerStatsRequest,
    ) -> Result<Stream<v1::StreamContainerStatsResponse>> {
        self.look(Call::StreamContainerStats, Subject::default(), &request, || {
            let all = self.all_container_stats(request.filter.as_ref());
            Ok(batches(all, |container_stats| v1::StreamContainerStatsResponse {
                container_stats,
            }))
        })
        .await
    }

    async fn pod_sandbox_stats(
        &self,
        request: v1::PodSandboxStatsRequest,
    ) -> Result<v1::PodSandboxStatsResponse> {
        let about = self.about_sandbox(&request.pod_sandbox_id);
        self.look(Call::PodSandboxStats, about, &request, || {
            let stats = Some(self.sandbox_stats_of(&request.pod_sandbox_id)?);
            Ok(v1::PodSandboxStatsResponse { stats })
        })
        .await
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: v1::ListPodSandboxStatsRequest,
    ) -> Result<v1::ListPodSandboxStatsResponse> {
        self.look(Call::ListPodSandboxStats, Subject::default(), &request, || {
            let stats = self.all_sandbox_stats(request.filter.as_ref());
            Ok(v1::ListPodSandboxStatsResponse { stats })
        })
        .await
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: v1::StreamPodSandboxStatsRequest,
    ) -> Result<Stream<v1::StreamPodSandboxStatsResponse>> {
        self.look(Call::StreamPodSandboxStats, Subject::default(), &request, || {
            let all = self.all_sandbox_stats(request.filter.as_ref());
            Ok(batches(all, |pod_sandbox_stats| {
                v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }
            }))
        })
        .await
    }

    /// Does nothing, like containerd without a CNI configuration template.
    async fn update_runtime_config(
        &self,
        request: v1::UpdateRuntimeConfigRequest,
    ) -> Result<v1::UpdateRuntimeConfigResponse> {
        self.look(Call::UpdateRuntimeConfig, Subject::default(), &request, || {
            Ok(v1::UpdateRuntimeConfigResponse {})
        })
        .await
    }

    async fn status(&self, request: v1::StatusRequest) -> Result<v1::StatusResponse> {
        let inner = &self.inner;
        self.look(Call::Status, Subject::default(), &request, || {
            let state = inner.state.lock();
            let condition = |kind: &str, reason: &str, trouble: &Option<String>| v1::RuntimeCondition {
                r#type: kind.to_owned(),
                status: trouble.is_none(),
                reason: trouble.as_ref().map(|_| reason.to_owned()).unwrap_or_default(),
                message: trouble.clone().unwrap_or_default(),
            };
            let network = state.network_trouble.as_ref();
            let network = network.map(|trouble| format!("Network plugin returns error: {trouble}"));
            let conditions = vec![
                condition("RuntimeReady", "RuntimeNotReady", &state.runtime_trouble),
                condition("NetworkReady", "NetworkPluginNotReady", &network),
            ];
            let handler = |name: &String| v1::RuntimeHandler {
                name: name.clone(),
                features: Some(v1::RuntimeHandlerFeatures {
                    recursive_read_only_mounts: true,
                    user_namespaces: inner.user_namespaces,
                }),
            };
            Ok(v1::StatusResponse {
                status: Some(v1::RuntimeStatus { conditions }),
                info: info(request.verbose, "{}".to_owned()),
                runtime_handlers: inner.handlers.iter().map(handler).collect(),
                features: Some(v1::RuntimeFeatures {
                    supplemental_groups_policy: true,
                    user_namespaces_host_network: false,
                }),
            })
        })
        .await
    }

    async fn checkpoint_container(
        &self,
        request: v1::CheckpointContainerRequest,
    ) -> Result<v1::CheckpointContainerResponse> {
        let call = Call::CheckpointContainer;
        let about = self.about_container(&request.container_id);
        self.look(call, about, &request, || {
            let message = "the runtime in memory has no processes to write a checkpoint of";
            let id = &request.container_id;
            Err(Error::call(Code::Unimplemented, call.name(), id, message))
        })
        .await
    }

    async fn get_container_events(
        &self,
        request: v1::GetEventsRequest,
    ) -> Result<Stream<v1::ContainerEventResponse>> {
        self.look(Call::GetContainerEvents, Subject::default(), &request, || {
            Ok(events::watch(self.inner.clone()).boxed())
        })
        .await
    }

    async fn list_metric_descriptors(
        &self,
        request: v1::ListMetricDescriptorsRequest,
    ) -> Result<v1::ListMetricDescriptorsResponse> {
        self.look(Call::ListMetricDescriptors, Subject::default(), &request, || {
            let descriptors = self.metric_descriptors();
            Ok(v1::ListMetricDescriptorsResponse { descriptors })
        })
        .await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        request: v1::ListPodSandboxMetricsRequest,
    ) -> Result<v1::ListPodSandboxMetricsResponse> {
        self.look(Call::ListPodSandboxMetrics, Subject::default(), &request, || {
            let pod_metrics = self.metrics();
            Ok(v1::ListPodSandboxMetricsResponse { pod_metrics })
        })
        .await
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        request: v1::StreamPodSandboxMetricsRequest,
    ) -> Result<Stream<v1::StreamPodSandboxMetricsResponse>> {
        self.look(
            Call::StreamPodSandboxMetrics,
            Subject::default(),
            &request,
            || {
                Ok(batches(self.metrics(), |pod_sandbox_metrics| {
                    v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics }
                }))
            },
        )
        .await
    }

    async fn runtime_config(&self, request: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse> {
        let cgroup_driver = self.inner.cgroup_driver as i32;
        self.look(Call::RuntimeConfig, Subject::default(), &request, || {
            let linux = Some(v1::LinuxRuntimeConfiguration { cgroup_driver });
            Ok(v1::RuntimeConfigResponse { linux })
        })
        .await
    }

    /// Stores nothing, because no call would show it.
    async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse> {
        let call = Call::UpdatePodSandboxResources;
        let about = self.about_sandbox(&request.pod_sandbox_id);
        self.look(call, about, &request, || {
            let id = &request.pod_sandbox_id;
            let found = self.settled(Instant::now()).sandboxes.find(id);
            found.map_err(|missing| {
                let message = format!("failed to find sandbox: {missing}");
                Error::call(missing.code(), call.name(), id, message)
            })?;
            Ok(v1::UpdatePodSandboxResourcesResponse {})
        })
        .await
    }
}
