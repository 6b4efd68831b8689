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

#[async_trait]
impl RuntimeService for Wrapper {
    async fn version(&self, request: v1::VersionRequest) -> Result<v1::VersionResponse> {
        self.call("Version", self.runtime.version(request)).await
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse> {
        self.call("RunPodSandbox", self.runtime.run_pod_sandbox(request))
            .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse> {
        self.call("StopPodSandbox", self.runtime.stop_pod_sandbox(request))
            .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse> {
        self.call("RemovePodSandbox", self.runtime.remove_pod_sandbox(request))
            .await
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse> {
        self.call("PodSandboxStatus", self.runtime.pod_sandbox_status(request))
            .await
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse> {
        let mut answer = self
            .call("ListPodSandbox", self.runtime.list_pod_sandbox(request))
            .await?;
        answer.items = self.faults.list_of_sandboxes(answer.items);
        Ok(answer)
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse> {
        self.call("CreateContainer", self.runtime.create_container(request))
            .await
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> Result<v1::StartContainerResponse> {
        self.call("StartContainer", self.runtime.start_container(request))
            .await
    }

    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse> {
        self.call("StopContainer", self.runtime.stop_container(request))
            .await
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse> {
        self.call("RemoveContainer", self.runtime.remove_container(request))
            .await
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> Result<v1::ListContainersResponse> {
        let mut answer = self
            .call("ListContainers", self.runtime.list_containers(request))
            .await?;
        answer.containers = self.faults.list(answer.containers);
        Ok(answer)
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse> {
        self.call("ContainerStatus", self.runtime.container_status(request))
            .await
    }

    async fn status(&self, request: v1::StatusRequest) -> Result<v1::StatusResponse> {
        self.call("Status", self.runtime.status(request)).await
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        self.call("ExecSync", self.runtime.exec_sync(request)).await
    }

    async fn update_runtime_config(
        &self,
        request: v1::UpdateRuntimeConfigRequest,
    ) -> Result<v1::UpdateRuntimeConfigResponse> {
        self.call("UpdateRuntimeConfig", self.runtime.update_runtime_config(request))
            .await
    }

    async fn get_container_events(
        &self,
        request: v1::GetEventsRequest,
    ) -> Result<BoxStream<'static, Result<v1::ContainerEventResponse>>> {
        self.call("GetContainerEvents", self.runtime.get_container_events(request))
            .await
    }

    async fn runtime_config(&self, request: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse> {
        self.call("RuntimeConfig", self.runtime.runtime_config(request))
            .await
    }
}
