//! A runtime in memory, on tokio's clock: containers end by a script, and every call that changes something is
//! recorded.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet_core::Clock;
use kubelet_cri::{Code, Error, ImageService, RuntimeService, v1};
use tokio::sync::Notify;
use tokio::time::Instant;

type Result<T> = std::result::Result<T, Error>;

/// The script of the containers with one name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Script {
    /// How long it runs until it ends by itself.
    pub(crate) runs_for: Option<Duration>,
    /// Its exit code.
    pub(crate) exit_code: i32,
    /// How long a start takes. A start that is dropped fails.
    pub(crate) starts_in: Duration,
    /// How long a stop takes.
    pub(crate) stops_in: Duration,
    /// How long a command in it takes, and its exit code.
    pub(crate) exec: (Duration, i32),
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<String, v1::PodSandboxStatus>,
    containers: BTreeMap<String, Container>,
    scripts: HashMap<String, Script>,
    failures: HashMap<&'static str, Error>,
    calls: Vec<String>,
    logins: Vec<String>,
    /// The runtime handlers that images were pulled for.
    pulled_for: Vec<String>,
    images: Vec<v1::Image>,
    /// An image that cannot be removed.
    stuck_image: Option<String>,
    /// How many items one answer can have.
    longest_list: Option<usize>,
    streams: bool,
    /// It offers `UpdatePodSandboxResources`.
    is_told_of_sandboxes: bool,
    /// The requested lists.
    lists: Vec<&'static str>,
    next_id: u32,
}

#[derive(Clone)]
struct Container {
    sandbox_id: String,
    config: v1::ContainerConfig,
    status: v1::ContainerStatus,
    ends_at: Option<Instant>,
    exit_code: i32,
}

/// Ends a container whose start was dropped.
struct CutShort<'a>(&'a Fake, &'a str);

impl Drop for CutShort<'_> {
    fn drop(&mut self) {
        let finished = self.0.nanos();
        let mut state = self.0.state();
        if let Some(container) = state.containers.get_mut(self.1) {
            end_container(container, 128, finished);
        }
    }
}

pub(crate) struct Fake {
    pub(crate) clock: Clock,
    state: Mutex<State>,
    stopped: Notify,
}

impl Fake {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            stopped: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let now = Instant::now();
        for container in state.containers.values_mut() {
            if container.status.state() == v1::ContainerState::ContainerRunning
                && let Some(end) = container.ends_at.filter(|end| *end <= now)
            {
                let finished = self.nanos() - (now - end).as_nanos() as i64;
                end_container(container, container.exit_code, finished);
            }
        }
        state
    }

    fn nanos(&self) -> i64 {
        self.clock.now().as_nanosecond() as i64
    }

    pub(crate) fn script(&self, name: &str, script: Script) {
        self.state().scripts.insert(name.to_owned(), script);
    }

    /// Makes the next call with this name fail.
    pub(crate) fn fail_next(&self, call: &'static str) {
        self.fail(call, Code::Internal);
    }

    /// The call fails with this code: `RuntimeConfig` until [`mend`](Self::mend), others once.
    pub(crate) fn fail(&self, call: &'static str, code: Code) {
        let error = Error::call(code, call, "", "broken");
        self.state().failures.insert(call, error);
    }

    /// The call no longer fails.
    pub(crate) fn mend(&self, call: &'static str) {
        self.state().failures.remove(call);
    }

    /// Takes the recorded calls that changed something.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    /// Implements `UpdatePodSandboxResources` from now on.
    pub(crate) fn is_told_of_sandboxes(&self) {
        self.state().is_told_of_sandboxes = true;
    }

    /// Ends the container's process with this signal.
    pub(crate) fn signal(&self, name: &str, signal: i32) {
        let finished = self.nanos();
        let mut state = self.state();
        let mut running = state.containers.values_mut().filter(|container| {
            container.status.state() == v1::ContainerState::ContainerRunning
                && container.config.metadata.as_ref().unwrap().name == name
        });
        end_container(running.next().expect("it runs"), 128 + signal, finished);
    }

    pub(crate) fn set_container_state(&self, id: &str, to: v1::ContainerState) {
        self.state().containers.get_mut(id).unwrap().status.state = to as i32;
    }

    /// A container of another program, without the labels of a kubelet.
    pub(crate) fn add_foreign_container(&self) {
        let mut state = self.state();
        let container = Container {
            sandbox_id: "foreign-sandbox".into(),
            config: v1::ContainerConfig::default(),
            status: v1::ContainerStatus {
                id: "foreign".into(),
                metadata: Some(v1::ContainerMetadata::default()),
                image: Some(v1::ImageSpec::default()),
                ..Default::default()
            },
            ends_at: None,
            exit_code: 0,
        };
        state.containers.insert("foreign".into(), container);
    }

    /// Simulates a restart of the node: no sandbox is ready.
    pub(crate) fn lose_sandboxes(&self) {
        for sandbox in self.state().sandboxes.values_mut() {
            sandbox.state = v1::PodSandboxState::SandboxNotready as i32;
        }
    }

    pub(crate) fn forget_containers(&self) {
        self.state().containers.clear();
    }

    /// The config of the newest container with this name.
    pub(crate) fn config_of(&self, name: &str) -> v1::ContainerConfig {
        let state = self.state();
        let mut named = state
            .containers
            .values()
            .filter(|container| container.config.metadata.as_ref().unwrap().name == name);
        named.next_back().expect("it was made").config.clone()
    }

    /// Limits the number of items in an answer; with `streams`, lists are available as streams, too.
    pub(crate) fn limit_lists(&self, longest: usize, streams: bool) {
        let mut state = self.state();
        (state.longest_list, state.streams) = (Some(longest), streams);
    }

    /// Takes the recorded lists.
    pub(crate) fn take_lists(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().lists)
    }

    /// Sets the listed images; any other image is present as well.
    pub(crate) fn images(&self) -> Vec<v1::Image> {
        self.state().images.clone()
    }

    pub(crate) fn add_image(&self, image: v1::Image) {
        self.state().images.push(image);
    }

    /// Makes the removal of this image fail.
    pub(crate) fn keep_image(&self, id: &str) {
        self.state().stuck_image = Some(id.to_owned());
    }

    /// Takes the recorded users of image pulls.
    pub(crate) fn take_logins(&self) -> Vec<String> {
        std::mem::take(&mut self.state().logins)
    }

    /// Takes the recorded runtime handlers of image pulls.
    pub(crate) fn take_pulled_for(&self) -> Vec<String> {
        std::mem::take(&mut self.state().pulled_for)
    }

    pub(crate) fn container_ids(&self) -> Vec<String> {
        self.state().containers.keys().cloned().collect()
    }

    pub(crate) fn sandbox_ids(&self) -> Vec<String> {
        self.state().sandboxes.keys().cloned().collect()
    }

    fn begin(&self, call: &'static str, what: &str) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if let Some(error) = state.failures.remove(call) {
            return Err(error);
        }
        let text = format!("{call} {what}");
        state.calls.push(text.trim_end().to_owned());
        Ok(state)
    }
}

fn end_container(container: &mut Container, code: i32, finished_at: i64) {
    container.status.state = v1::ContainerState::ContainerExited as i32;
    container.status.exit_code = code;
    container.status.finished_at = finished_at;
    container.status.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
}

fn selected(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[async_trait]
impl RuntimeService for Fake {
    async fn version(&self, _: v1::VersionRequest) -> Result<v1::VersionResponse> {
        if let Some(error) = self.state().failures.remove("Version") {
            return Err(error);
        }
        Ok(v1::VersionResponse {
            runtime_name: "fake".into(),
            ..Default::default()
        })
    }

    async fn runtime_config(&self, _: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse> {
        let error = self.state().failures.get("RuntimeConfig").cloned();
        Err(error.unwrap_or_else(|| Error::unimplemented("RuntimeConfig")))
    }

    async fn status(&self, _: v1::StatusRequest) -> Result<v1::StatusResponse> {
        let condition = |r#type: &str, status| v1::RuntimeCondition {
            r#type: r#type.into(),
            status,
            reason: "NetworkPluginNotReady".into(),
            message: "no network".into(),
        };
        Ok(v1::StatusResponse {
            status: Some(v1::RuntimeStatus {
                conditions: vec![condition("RuntimeReady", true), condition("NetworkReady", false)],
            }),
            ..Default::default()
        })
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse> {
        let config = request.config.unwrap();
        let metadata = config.metadata.clone().unwrap();
        let mut state = self.begin("RunPodSandbox", &metadata.name)?;
        state.next_id += 1;
        let id = format!("sandbox-{:04}", state.next_id);
        let status = v1::PodSandboxStatus {
            id: id.clone(),
            metadata: Some(metadata),
            state: v1::PodSandboxState::SandboxReady as i32,
            created_at: self.nanos(),
            network: Some(v1::PodSandboxNetworkStatus {
                ip: "10.88.0.5".into(),
                ..Default::default()
            }),
            linux: config.linux.map(|linux| v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace {
                    options: linux
                        .security_context
                        .and_then(|context| context.namespace_options),
                }),
            }),
            labels: config.labels,
            annotations: config.annotations,
            runtime_handler: request.runtime_handler,
        };
        state.sandboxes.insert(id.clone(), status);
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn stop_pod_sandbox(
        &self,
        request: v1::StopPodSandboxRequest,
    ) -> Result<v1::StopPodSandboxResponse> {
        let mut state = self.begin("StopPodSandbox", "")?;
        let Some(sandbox) = state.sandboxes.get_mut(&request.pod_sandbox_id) else {
            return Err(Error::not_found("StopPodSandbox", request.pod_sandbox_id));
        };
        sandbox.state = v1::PodSandboxState::SandboxNotready as i32;
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(
        &self,
        request: v1::RemovePodSandboxRequest,
    ) -> Result<v1::RemovePodSandboxResponse> {
        let mut state = self.begin("RemovePodSandbox", &request.pod_sandbox_id)?;
        state.sandboxes.remove(&request.pod_sandbox_id);
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse> {
        let state = self.state();
        let status = state.sandboxes.get(&request.pod_sandbox_id);
        let status = status.ok_or_else(|| Error::not_found("PodSandboxStatus", request.pod_sandbox_id))?;
        Ok(v1::PodSandboxStatusResponse {
            status: Some(status.clone()),
            ..Default::default()
        })
    }

    async fn list_pod_sandbox(
        &self,
        request: v1::ListPodSandboxRequest,
    ) -> Result<v1::ListPodSandboxResponse> {
        let filter = request.filter.unwrap_or_default();
        let mut state = self.state();
        let items = state.sandboxes.values().filter(|sandbox| {
            selected(&sandbox.labels, &filter.label_selector)
                && filter.state.is_none_or(|wanted| wanted.state == sandbox.state)
        });
        let items = items.map(|sandbox| v1::PodSandbox {
            id: sandbox.id.clone(),
            metadata: sandbox.metadata.clone(),
            state: sandbox.state,
            created_at: sandbox.created_at,
            labels: sandbox.labels.clone(),
            annotations: sandbox.annotations.clone(),
            runtime_handler: String::new(),
        });
        let items = items.collect();
        let items = state.fitting("ListPodSandbox", items)?;
        Ok(v1::ListPodSandboxResponse { items })
    }

    async fn stream_pod_sandboxes(
        &self,
        request: v1::StreamPodSandboxesRequest,
    ) -> Result<BoxStream<'static, Result<v1::StreamPodSandboxesResponse>>> {
        let longest = self.start_stream("StreamPodSandboxes")?;
        let request = v1::ListPodSandboxRequest {
            filter: request.filter,
        };
        let listed = self.list_pod_sandbox(request).await;
        self.state().longest_list = Some(longest);
        let parts: Vec<_> = listed?
            .items
            .chunks(longest)
            .map(|part| {
                Ok(v1::StreamPodSandboxesResponse {
                    pod_sandboxes: part.to_vec(),
                })
            })
            .collect();
        Ok(futures::stream::iter(parts).boxed())
    }

    async fn create_container(
        &self,
        request: v1::CreateContainerRequest,
    ) -> Result<v1::CreateContainerResponse> {
        let config = request.config.unwrap();
        let metadata = config.metadata.clone().unwrap();
        let what = format!("{} {}", metadata.name, metadata.attempt);
        let mut state = self.begin("CreateContainer", &what)?;
        state.next_id += 1;
        let id = format!("container-{:04}", state.next_id);
        let status = v1::ContainerStatus {
            id: id.clone(),
            metadata: Some(metadata),
            state: v1::ContainerState::ContainerCreated as i32,
            created_at: self.nanos(),
            image: config.image.clone(),
            image_ref: config.image.clone().unwrap_or_default().image,
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            log_path: format!(
                "{}/{}",
                request.sandbox_config.unwrap().log_directory,
                config.log_path
            ),
            ..Default::default()
        };
        let container = Container {
            sandbox_id: request.pod_sandbox_id,
            config,
            status,
            ends_at: None,
            exit_code: 0,
        };
        state.containers.insert(id.clone(), container);
        Ok(v1::CreateContainerResponse { container_id: id })
    }

    async fn start_container(
        &self,
        request: v1::StartContainerRequest,
    ) -> Result<v1::StartContainerResponse> {
        let name = self.name_of(&request.container_id);
        let script = {
            let state = self.begin("StartContainer", &name)?;
            state.scripts.get(&name).copied().unwrap_or_default()
        };
        let cut_short = CutShort(self, &request.container_id);
        tokio::time::sleep(script.starts_in).await;
        std::mem::forget(cut_short);
        let started_at = self.nanos();
        let mut state = self.state();
        let container = state.containers.get_mut(&request.container_id).unwrap();
        std::fs::write(&container.status.log_path, "").unwrap();
        container.status.state = v1::ContainerState::ContainerRunning as i32;
        container.status.started_at = started_at;
        container.ends_at = script.runs_for.map(|duration| Instant::now() + duration);
        container.exit_code = script.exit_code;
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse> {
        let name = self.name_of(&request.container_id);
        let what = format!("{name} {}", request.timeout);
        let stops_in = {
            let state = self.begin("StopContainer", &what)?;
            state.scripts.get(&name).copied().unwrap_or_default().stops_in
        };
        let timeout = Duration::from_secs(request.timeout as u64);
        tokio::time::sleep(stops_in.min(timeout)).await;
        let finished_at = self.nanos();
        let mut state = self.state();
        state.calls.push(format!("stopped {name}"));
        if let Some(container) = state.containers.get_mut(&request.container_id) {
            end_container(container, if stops_in > timeout { 137 } else { 143 }, finished_at);
        }
        self.stopped.notify_waiters();
        Ok(v1::StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: v1::RemoveContainerRequest,
    ) -> Result<v1::RemoveContainerResponse> {
        let name = self.name_of(&request.container_id);
        let mut state = self.begin("RemoveContainer", &name)?;
        state.containers.remove(&request.container_id);
        Ok(v1::RemoveContainerResponse {})
    }

    async fn list_containers(
        &self,
        request: v1::ListContainersRequest,
    ) -> Result<v1::ListContainersResponse> {
        let filter = request.filter.unwrap_or_default();
        let mut state = self.state();
        let containers = state.containers.values().filter(|container| {
            selected(&container.status.labels, &filter.label_selector)
                && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.sandbox_id)
                && filter
                    .state
                    .is_none_or(|wanted| wanted.state == container.status.state)
        });
        let containers = containers.map(|container| v1::Container {
            id: container.status.id.clone(),
            pod_sandbox_id: container.sandbox_id.clone(),
            metadata: container.status.metadata.clone(),
            image: container.status.image.clone(),
            image_ref: container.status.image_ref.clone(),
            state: container.status.state,
            created_at: container.status.created_at,
            labels: container.status.labels.clone(),
            annotations: container.status.annotations.clone(),
            image_id: String::new(),
        });
        let containers = containers.collect();
        let containers = state.fitting("ListContainers", containers)?;
        Ok(v1::ListContainersResponse { containers })
    }

    async fn stream_containers(
        &self,
        request: v1::StreamContainersRequest,
    ) -> Result<BoxStream<'static, Result<v1::StreamContainersResponse>>> {
        let longest = self.start_stream("StreamContainers")?;
        let request = v1::ListContainersRequest {
            filter: request.filter,
        };
        let listed = self.list_containers(request).await;
        self.state().longest_list = Some(longest);
        let parts: Vec<_> = listed?
            .containers
            .chunks(longest)
            .map(|part| {
                Ok(v1::StreamContainersResponse {
                    containers: part.to_vec(),
                })
            })
            .collect();
        Ok(futures::stream::iter(parts).boxed())
    }

    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse> {
        let state = self.state();
        let container = state.containers.get(&request.container_id);
        let container = container.ok_or_else(|| Error::not_found("ContainerStatus", request.container_id))?;
        Ok(v1::ContainerStatusResponse {
            status: Some(container.status.clone()),
            ..Default::default()
        })
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse> {
        let linux = request.linux.unwrap();
        let what = format!(
            "{} cpu {}/{} memory {}",
            self.name_of(&request.container_id),
            linux.cpu_shares,
            linux.cpu_quota,
            linux.memory_limit_in_bytes
        );
        drop(self.begin("UpdateContainerResources", &what)?);
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse> {
        const CALL: &str = "UpdatePodSandboxResources";
        if !self.state().is_told_of_sandboxes {
            return Err(Error::unimplemented(CALL));
        }
        let resources = request.resources.unwrap();
        let what = format!(
            "cpu {}/{} memory {}",
            resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes
        );
        drop(self.begin(CALL, &what)?);
        Ok(v1::UpdatePodSandboxResourcesResponse {})
    }

    /// Each uses 500 bytes.
    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse> {
        let sandbox_id = request.filter.unwrap_or_default().pod_sandbox_id;
        let state = self.state();
        let in_sandbox = state.containers.iter().filter(|(_, container)| {
            container.sandbox_id == sandbox_id
                && container.status.state() == v1::ContainerState::ContainerRunning
        });
        let stats = in_sandbox.map(|(id, container)| v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: id.clone(),
                metadata: container.config.metadata.clone(),
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
            }),
            memory: Some(v1::MemoryUsage {
                usage_bytes: Some(v1::UInt64Value { value: 500 }),
                ..Default::default()
            }),
            ..Default::default()
        });
        Ok(v1::ListContainerStatsResponse {
            stats: stats.collect(),
        })
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        let name = self.name_of(&request.container_id);
        let what = format!("{name} {}", request.cmd.join(" "));
        let (takes, exit_code) = {
            let state = self.begin("ExecSync", &what)?;
            state.scripts.get(&name).copied().unwrap_or_default().exec
        };
        let stopped = async {
            loop {
                self.stopped.notified().await;
                let state = self.state();
                let container = state.containers.get(&request.container_id);
                if container.is_none_or(|container| container.status.finished_at > 0) {
                    break;
                }
            }
        };
        let exit_code = tokio::select! {
            () = tokio::time::sleep(takes) => exit_code,
            // Killed with its container.
            () = stopped => 137,
        };
        Ok(v1::ExecSyncResponse {
            exit_code,
            ..Default::default()
        })
    }
}

impl State {
    fn fitting<T>(&mut self, call: &'static str, items: Vec<T>) -> Result<Vec<T>> {
        self.lists.push(call);
        match self.longest_list {
            Some(longest) if items.len() > longest => {
                let message = "grpc: trying to send message larger than max (17 vs. 16)";
                Err(Error::call(Code::ResourceExhausted, call, "", message))
            }
            _ => Ok(items),
        }
    }
}

impl Fake {
    /// Suspends the limit for the list that is sent in parts.
    fn start_stream(&self, call: &'static str) -> Result<usize> {
        let mut state = self.state();
        if !state.streams {
            return Err(Error::unimplemented(call));
        }
        state.lists.push(call);
        Ok(state.longest_list.take().unwrap_or(usize::MAX))
    }

    fn name_of(&self, id: &str) -> String {
        let state = self.state();
        let container = state.containers.get(id);
        container.map_or_else(String::new, |container| {
            container.config.metadata.as_ref().unwrap().name.clone()
        })
    }
}

/// Every image is present.
#[async_trait]
impl ImageService for Fake {
    async fn list_images(&self, _: v1::ListImagesRequest) -> Result<v1::ListImagesResponse> {
        let images = self.images();
        Ok(v1::ListImagesResponse { images })
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse> {
        Ok(v1::ImageStatusResponse {
            image: Some(v1::Image {
                id: format!("id of {}", request.image.unwrap().image),
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse> {
        let login = request.auth.unwrap_or_default().username;
        let image = request.image.unwrap();
        let mut state = self.state();
        state.logins.push(login);
        state.pulled_for.push(image.runtime_handler);
        Ok(v1::PullImageResponse {
            image_ref: image.image,
        })
    }

    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse> {
        let id = request.image.unwrap().image;
        let mut state = self.state();
        if state.stuck_image.as_ref() == Some(&id) {
            return Err(Error::internal("RemoveImage", id, "image is stuck"));
        }
        state.images.retain(|image| image.id != id);
        Ok(v1::RemoveImageResponse {})
    }
}
