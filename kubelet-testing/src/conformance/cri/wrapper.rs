//! A wrapper between the engine and the services of a runtime. It injects faults.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use kubelet_cri::{Code, Error, RuntimeService, v1};

use crate::conformance::faults::{Faults, Lost};

type Result<T> = std::result::Result<T, Error>;

pub(super) struct Wrapper {
    pub(super) runtime: Arc<dyn RuntimeService>,
    pub(super) faults: Arc<Faults>,
}

impl Wrapper {
    async fn call<T>(&self, name: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.faults.call(name, call).await {
            Ok(answer) => answer,
            Err(Lost::Failed) => Err(Error::call(Code::Unavailable, name, "", "it failed on its way")),
            Err(Lost::NoAnswer(after)) => {
                let message = format!("no answer within {after:?}");
                Err(Error::call(Code::DeadlineExceeded, name, "", message))
            }
        }
    }
}

/// Implements the service with the methods in the braces, and one for each row, which passes the call on.
macro_rules! wrapper {
    ({ $($other:tt)* } $($method:ident $call:ident($request:ident) -> $answer:ty;)*) => {
        #[async_trait]
        impl RuntimeService for Wrapper {
            $($other)*

            $(async fn $method(&self, request: v1::$request) -> Result<$answer> {
                self.call(stringify!($call), self.runtime.$method(request)).await
            })*
        }
    };
}

wrapper! {
    {
        async fn list_pod_sandbox(&self, request: v1::ListPodSandboxRequest) -> Result<v1::ListPodSandboxResponse> {
            let list = self.runtime.list_pod_sandbox(request);
            let mut answer = self.call("ListPodSandbox", list).await?;
            answer.items = self.faults.list_of_sandboxes(answer.items);
            Ok(answer)
        }

        async fn list_containers(&self, request: v1::ListContainersRequest) -> Result<v1::ListContainersResponse> {
            let list = self.runtime.list_containers(request);
            let mut answer = self.call("ListContainers", list).await?;
            answer.containers = self.faults.list(answer.containers);
            Ok(answer)
        }
    }
    version Version(VersionRequest) -> v1::VersionResponse;
    run_pod_sandbox RunPodSandbox(RunPodSandboxRequest) -> v1::RunPodSandboxResponse;
    stop_pod_sandbox StopPodSandbox(StopPodSandboxRequest) -> v1::StopPodSandboxResponse;
    remove_pod_sandbox RemovePodSandbox(RemovePodSandboxRequest) -> v1::RemovePodSandboxResponse;
    pod_sandbox_status PodSandboxStatus(PodSandboxStatusRequest) -> v1::PodSandboxStatusResponse;
    create_container CreateContainer(CreateContainerRequest) -> v1::CreateContainerResponse;
    start_container StartContainer(StartContainerRequest) -> v1::StartContainerResponse;
    stop_container StopContainer(StopContainerRequest) -> v1::StopContainerResponse;
    remove_container RemoveContainer(RemoveContainerRequest) -> v1::RemoveContainerResponse;
    container_status ContainerStatus(ContainerStatusRequest) -> v1::ContainerStatusResponse;
    status Status(StatusRequest) -> v1::StatusResponse;
    exec_sync ExecSync(ExecSyncRequest) -> v1::ExecSyncResponse;
    update_runtime_config UpdateRuntimeConfig(UpdateRuntimeConfigRequest) -> v1::UpdateRuntimeConfigResponse;
    get_container_events GetContainerEvents(GetEventsRequest) -> BoxStream<'static, Result<v1::ContainerEventResponse>>;
    runtime_config RuntimeConfig(RuntimeConfigRequest) -> v1::RuntimeConfigResponse;
}
