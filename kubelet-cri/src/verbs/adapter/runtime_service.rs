//! `RuntimeService` of the adapter.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;
use futures::stream::BoxStream;

use super::records::{AddError, Phase, SandboxPhase};
use super::{CriAdapter, Result, request, response};
use crate::error::{Code, Error};
use crate::services::{KUBELET_API_VERSION, RuntimeService};
use crate::v1;
use crate::v1::ContainerEventType as EventType;
use crate::verbs::ContainerKey;

#[async_trait]
impl RuntimeService for CriAdapter {
    async fn version(&self, _request: v1::VersionRequest) -> Result<v1::VersionResponse> {
        Ok(v1::VersionResponse {
            version: KUBELET_API_VERSION.to_owned(),
            runtime_name: self.inner.runtime.name().to_owned(),
            runtime_version: self.inner.runtime.version().to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    /// The runtime is ready if it can list its containers. The network, the host's, always is.
    async fn status(&self, _request: v1::StatusRequest) -> Result<v1::StatusResponse> {
        let condition = |name: &str, problem: Option<Error>| v1::RuntimeCondition {
            r#type: name.to_owned(),
            status: problem.is_none(),
            reason: problem.as_ref().map_or("", |_| "ListContainersFailed").to_owned(),
            message: problem.map(|error| error.to_string()).unwrap_or_default(),
        };
        Ok(v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![
                    condition("RuntimeReady", self.containers("Status").await.err()),
                    condition("NetworkReady", None),
                ],
            }),
            runtime_handlers: vec![v1::RuntimeHandler::default()],
            ..Default::default()
        })
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse> {
        const CALL: &str = "RunPodSandbox";
        let config = request.config.unwrap_or_default();
        let Some(metadata) = config
            .metadata
            .clone()
            .filter(|metadata| !metadata.uid.is_empty())
        else {
            return Err(Error::invalid_argument(CALL, "", "the sandbox has no pod UID"));
        };
        let pod = format!("{}/{}", metadata.namespace, metadata.name);
        let handler = request.runtime_handler;
        if !handler.is_empty() && handler != self.inner.runtime.name() {
            let message = format!("no runtime for {handler:?} is configured");
            return Err(Error::invalid_argument(CALL, pod, message));
        }
        let maps = |port: &&v1::PortMapping| port.host_port != 0 && port.host_port != port.container_port;
        if let Some(port) = config.port_mappings.iter().find(maps) {
            let message = format!(
                "the runtime does not support port mappings: port {} of the pod as port {} of the host",
                port.container_port, port.host_port
            );
            return Err(Error::invalid_argument(CALL, pod, message));
        }
        if let Some(feature) = request::unsupported_by_sandbox(&config) {
            return Err(self.missing(CALL, &pod, feature));
        }
        let pods = self.inner.runtime.pods();
        let phase = pods.map_or(SandboxPhase::Ready, |_| SandboxPhase::Beginning);
        let records = self.records(CALL).await?;
        let added = records.add_sandbox(config, handler, self.now(), phase);
        let entry = added.map_err(|error| match error {
            AddError::Exists(id) => {
                let message = format!("attempt {} of the pod's sandbox is {id:?}", metadata.attempt);
                Error::call(Code::AlreadyExists, CALL, &pod, message)
            }
            error => add_failed(CALL, &pod, error),
        })?;
        if let Some(pods) = pods {
            self.begin_pod(CALL, pods, &entry).await?;
        }
        tracing::debug!(%pod, uid = %metadata.uid, id = %entry.id, "sandbox made");
        self.changed(&entry.id, &entry.id, EventType::ContainerCreatedEvent);
        self.changed(&entry.id, &entry.id, EventType::ContainerStartedEvent);
        Ok(v1::RunPodSandboxResponse {
            pod_sandbox_id: entry.id.clone(),
        })
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse> {
        const CALL: &str = "StopPodSandbox";
        if let Some(sandbox) = self.records(CALL).await?.sandbox(&request.pod_sandbox_id) {
            self.stop_sandbox(CALL, &sandbox).await?;
        }
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse> {
        const CALL: &str = "RemovePodSandbox";
        let records = self.records(CALL).await?;
        if let Some(sandbox) = records.sandbox(&request.pod_sandbox_id) {
            self.stop_sandbox(CALL, &sandbox).await?;
            let containers = records.containers_of(&sandbox.id);
            try_join_all(containers.iter().map(|entry| self.remove(CALL, entry))).await?;
            let removed = records.remove_sandbox(&sandbox);
            removed.map_err(|error| Error::internal(CALL, &sandbox.id, error.to_string()))?;
            self.changed(&sandbox.id, &sandbox.id, EventType::ContainerDeletedEvent);
        }
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse> {
        const CALL: &str = "PodSandboxStatus";
        let sandbox = self.sandbox(CALL, &request.pod_sandbox_id).await?;
        let addresses = self.addresses(CALL, &sandbox).await?;
        let mut answer = v1::PodSandboxStatusResponse {
            status: Some(response::sandbox_status(&sandbox, addresses)),
            ..Default::default()
        };
        // A kubelet with the evented PLEG reads the containers from this answer. For that kubelet, a timestamp of 0
        // means that the runtime does not support this.
        if self.inner.runtime.events().is_some() {
            answer.timestamp = self.now();
            answer.containers_statuses = self.statuses_of(CALL, &sandbox.id).await?;
        }
        Ok(answer)
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse> {
        let filter = request.filter.unwrap_or_default();
        let sandboxes = self.sandboxes("ListPodSandbox").await?;
        let mut items: Vec<_> = sandboxes.iter().map(|entry| response::sandbox(entry)).collect();
        items.retain(|item| {
            item.id.starts_with(&filter.id)
                && filter
                    .state
                    .as_ref()
                    .is_none_or(|wanted| wanted.state == item.state)
                && response::has_labels(&item.labels, &filter.label_selector)
        });
        Ok(v1::ListPodSandboxResponse { items })
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse> {
        const CALL: &str = "CreateContainer";
        let sandbox = self.sandbox(CALL, &request.pod_sandbox_id).await?;
        let config = request.config.unwrap_or_default();
        let Some(metadata) = config
            .metadata
            .as_ref()
            .filter(|metadata| !metadata.name.is_empty())
        else {
            return Err(Error::invalid_argument(
                CALL,
                &sandbox.id,
                "the container has no name",
            ));
        };
        if let Some(feature) = request::unsupported_by_container(&config) {
            return Err(self.missing(CALL, &sandbox.id, feature));
        }
        // The protocol requires this error.
        if request::has_group_without_user(&config) {
            let message = "run_as_group is set without run_as_user";
            return Err(Error::invalid_argument(CALL, &sandbox.id, message));
        }
        let uid = sandbox
            .config
            .metadata
            .as_ref()
            .map_or("", |metadata| &metadata.uid);
        let key = ContainerKey::new(uid, &metadata.name, metadata.attempt);
        let image = config.image.as_ref().map_or("", |image| image.image.as_str());
        if let Some(images) = self.inner.runtime.images() {
            let found = self
                .within(CALL, image, Duration::ZERO, images.status(image))
                .await?;
            if found.is_none() {
                return Err(Error::not_found(CALL, image));
            }
        }
        let about = key.to_string();
        let added = self
            .records(CALL)
            .await?
            .add_container(&sandbox, key, config, self.now());
        let entry = added.map_err(|error| match error {
            AddError::Exists(id) => {
                let message = format!("{about} is {id:?}");
                Error::call(Code::AlreadyExists, CALL, &sandbox.id, message)
            }
            error => add_failed(CALL, &sandbox.id, error),
        })?;
        self.changed(&entry.sandbox_id, &entry.id, EventType::ContainerCreatedEvent);
        Ok(v1::CreateContainerResponse {
            container_id: entry.id.clone(),
        })
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> Result<v1::StartContainerResponse> {
        const CALL: &str = "StartContainer";
        let entry = self.container(CALL, &request.container_id).await?;
        let _turn = entry.turn.lock().await;
        let sandbox = self.sandbox(CALL, &entry.sandbox_id).await?;
        match entry.phase() {
            Phase::Created => {}
            Phase::Removing => return Err(Error::not_found(CALL, &entry.id)),
            Phase::Started { .. } | Phase::Failed { .. } | Phase::Lost { .. } => {
                let message = format!("{} has already been started", entry.key);
                return Err(Error::failed_precondition(CALL, &entry.id, message));
            }
        }
        if sandbox.is_stopped() {
            let message = format!("sandbox {:?} is not ready", sandbox.id);
            return Err(Error::failed_precondition(CALL, &entry.id, message));
        }
        self.start(CALL, &sandbox, &entry).await?;
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse> {
        const CALL: &str = "StopContainer";
        if let Some(entry) = self.records(CALL).await?.container(&request.container_id) {
            let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
            self.stop(CALL, &entry, grace).await?;
        }
        Ok(v1::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse> {
        const CALL: &str = "RemoveContainer";
        if let Some(entry) = self.records(CALL).await?.container(&request.container_id) {
            self.remove(CALL, &entry).await?;
        }
        Ok(v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> Result<v1::ListContainersResponse> {
        let filter = request.filter.unwrap_or_default();
        let views = self.containers("ListContainers").await?;
        let mut containers: Vec<_> = views
            .iter()
            .map(|(entry, view)| response::container(entry, view))
            .collect();
        containers.retain(|item| {
            item.id.starts_with(&filter.id)
                && item.pod_sandbox_id.starts_with(&filter.pod_sandbox_id)
                && filter
                    .state
                    .as_ref()
                    .is_none_or(|wanted| wanted.state == item.state)
                && response::has_labels(&item.labels, &filter.label_selector)
        });
        Ok(v1::ListContainersResponse { containers })
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse> {
        const CALL: &str = "ContainerStatus";
        let entry = self.container(CALL, &request.container_id).await?;
        let (view, live) = self.view(CALL, &entry).await?;
        let sandbox = self.records(CALL).await?.sandbox(&entry.sandbox_id);
        let info = live.filter(|_| request.verbose).map(|live| live.info);
        Ok(v1::ContainerStatusResponse {
            status: Some(response::container_status(sandbox.as_deref(), &entry, view)),
            info: info.unwrap_or_default(),
        })
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse> {
        let id = request.container_id;
        Err(self.missing("UpdateContainerResources", &id, "a change of resources"))
    }

    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> Result<v1::ReopenContainerLogResponse> {
        const CALL: &str = "ReopenContainerLog";
        let id = request.container_id;
        let Some(logs) = self.inner.runtime.logs() else {
            return Err(self.missing(CALL, &id, "logs"));
        };
        let entry = self.running(CALL, &id).await?;
        self.within(CALL, &id, Duration::ZERO, logs.reopen(&entry.key))
            .await?;
        Ok(v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        const CALL: &str = "ExecSync";
        let id = request.container_id;
        let Some(exec) = self.inner.runtime.exec() else {
            return Err(self.missing(CALL, &id, "exec"));
        };
        let entry = self.running(CALL, &id).await?;
        if request.cmd.is_empty() {
            return Err(Error::invalid_argument(CALL, id, "the command is empty"));
        }
        let command = exec.exec_sync(&entry.key, &request.cmd);
        let output = match u64::try_from(request.timeout) {
            // In the protocol, 0 means no timeout.
            Ok(0) | Err(_) => command.await,
            Ok(seconds) => match tokio::time::timeout(Duration::from_secs(seconds), command).await {
                Ok(output) => output,
                // Not `Error::Timeout`: the runtime did answer, and exec probes need the different code.
                Err(_) => {
                    let message = format!("failed to exec in container: timeout {seconds}s exceeded");
                    return Err(Error::call(Code::DeadlineExceeded, CALL, id, message));
                }
            },
        };
        let output = output.map_err(|error| error.into_call(CALL, &id))?;
        Ok(v1::ExecSyncResponse {
            stdout: output.stdout,
            stderr: output.stderr,
            exit_code: output.exit_code,
        })
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse> {
        self.offer_exec(request).await
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<v1::AttachResponse> {
        self.offer_attach(request).await
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<v1::PortForwardResponse> {
        self.offer_port_forward(request).await
    }

    async fn container_stats(
        &self,
        request: v1::ContainerStatsRequest,
    ) -> Result<v1::ContainerStatsResponse> {
        const CALL: &str = "ContainerStats";
        let entry = self.container(CALL, &request.container_id).await?;
        Ok(v1::ContainerStatsResponse {
            stats: Some(self.stats(CALL, &entry).await?),
        })
    }

    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse> {
        const CALL: &str = "ListContainerStats";
        if self.inner.runtime.stats().is_none() {
            return Err(self.missing(CALL, "", "stats"));
        }
        let filter = request.filter.unwrap_or_default();
        let mut stats = Vec::new();
        for (entry, view) in self.containers(CALL).await? {
            let wanted = view.state == v1::ContainerState::ContainerRunning
                && entry.id.starts_with(&filter.id)
                && entry.sandbox_id.starts_with(&filter.pod_sandbox_id)
                && response::has_labels(&entry.config.labels, &filter.label_selector);
            if wanted {
                match self.stats(CALL, &entry).await {
                    Ok(usage) => stats.push(usage),
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(v1::ListContainerStatsResponse { stats })
    }

    async fn get_container_events(
        &self,
        _request: v1::GetEventsRequest,
    ) -> Result<BoxStream<'static, Result<v1::ContainerEventResponse>>> {
        const CALL: &str = "GetContainerEvents";
        self.records(CALL).await?;
        match self.inner.runtime.events() {
            Some(events) => Ok(self.event_stream(events.watch())),
            None => Err(self.missing(CALL, "", "events")),
        }
    }
}

fn add_failed(call: &'static str, id: &str, error: AddError) -> Error {
    match error {
        AddError::Exists(other) => {
            Error::call(Code::AlreadyExists, call, id, format!("it exists as {other:?}"))
        }
        AddError::SandboxNotReady => Error::failed_precondition(call, id, "the sandbox is not ready"),
        AddError::Io(error) => Error::internal(call, id, format!("write the record: {error}")),
    }
}
