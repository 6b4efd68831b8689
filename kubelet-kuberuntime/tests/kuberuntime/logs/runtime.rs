//! A runtime whose containers only write logs.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use kubelet_cri::{Code, Error, RuntimeService, v1};
use tempfile::TempDir;
use tokio::sync::Notify;

type Result<T> = std::result::Result<T, Error>;

/// The containers' logs are `<id>.log` in its folder.
pub(crate) struct LogRuntime {
    dir: TempDir,
    containers: Mutex<BTreeMap<String, Logging>>,
    /// The next status of a container is this error.
    pub(crate) status_error: Mutex<Option<Error>>,
    /// Reopening a log fails.
    pub(crate) reopen_fails: Mutex<bool>,
    /// Calls, as `Call id`.
    pub(crate) calls: Mutex<Vec<String>>,
    /// Reopening the log of this container waits for the test.
    pub(crate) held: Mutex<Option<String>>,
    pub(crate) release: Notify,
}

struct Logging {
    file: File,
    state: v1::ContainerState,
}

fn open(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

impl LogRuntime {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            containers: Mutex::default(),
            status_error: Mutex::default(),
            reopen_fails: Mutex::default(),
            calls: Mutex::default(),
            held: Mutex::default(),
            release: Notify::new(),
        }
    }

    /// A runtime with the running container `c`.
    pub(crate) fn running() -> Self {
        let runtime = Self::new();
        runtime.add("c", v1::ContainerState::ContainerRunning);
        runtime
    }

    pub(crate) fn add(&self, id: &str, state: v1::ContainerState) {
        let file = open(&self.log(id));
        self.containers
            .lock()
            .unwrap()
            .insert(id.to_owned(), Logging { file, state });
    }

    pub(crate) fn log(&self, id: &str) -> PathBuf {
        self.dir.path().join(format!("{id}.log"))
    }

    /// Writes to the open file, even if it was renamed.
    pub(crate) fn write(&self, id: &str, text: &str) {
        let mut containers = self.containers.lock().unwrap();
        containers
            .get_mut(id)
            .unwrap()
            .file
            .write_all(text.as_bytes())
            .unwrap();
    }

    /// Writes a line of standard output.
    pub(crate) fn line(&self, id: &str, text: &str) {
        self.write(id, &format!("2024-01-01T00:00:00Z stdout F {text}\n"));
    }

    pub(crate) fn end(&self, id: &str) {
        self.containers.lock().unwrap().get_mut(id).unwrap().state = v1::ContainerState::ContainerExited;
    }

    pub(crate) fn reopen(&self, id: &str) {
        let file = open(&self.log(id));
        self.containers.lock().unwrap().get_mut(id).unwrap().file = file;
    }

    /// The files in its folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

macro_rules! not_offered {
    ($($call:ident $request:ident $response:ident;)*) => {
        #[async_trait]
        impl RuntimeService for LogRuntime {
            $(async fn $call(&self, _: v1::$request) -> Result<v1::$response> {
                Err(Error::unimplemented(stringify!($call)))
            })*

            async fn list_containers(
                &self,
                _: v1::ListContainersRequest,
            ) -> Result<v1::ListContainersResponse> {
                let containers = self.containers.lock().unwrap();
                let listed = containers.iter().map(|(id, container)| v1::Container {
                    id: id.clone(),
                    state: container.state as i32,
                    ..Default::default()
                });
                Ok(v1::ListContainersResponse { containers: listed.collect() })
            }

            async fn container_status(
                &self,
                request: v1::ContainerStatusRequest,
            ) -> Result<v1::ContainerStatusResponse> {
                let id = request.container_id;
                self.calls.lock().unwrap().push(format!("ContainerStatus {id}"));
                if let Some(error) = self.status_error.lock().unwrap().take() {
                    return Err(error);
                }
                let containers = self.containers.lock().unwrap();
                let container =
                    containers.get(&id).ok_or_else(|| Error::not_found("ContainerStatus", &id))?;
                let status = v1::ContainerStatus {
                    log_path: self.log(&id).display().to_string(),
                    state: container.state as i32,
                    id,
                    ..Default::default()
                };
                Ok(v1::ContainerStatusResponse { status: Some(status), ..Default::default() })
            }

            async fn reopen_container_log(
                &self,
                request: v1::ReopenContainerLogRequest,
            ) -> Result<v1::ReopenContainerLogResponse> {
                let id = request.container_id;
                self.calls.lock().unwrap().push(format!("ReopenContainerLog {id}"));
                let held = self.held.lock().unwrap().as_ref() == Some(&id);
                if held {
                    self.release.notified().await;
                }
                if *self.reopen_fails.lock().unwrap() {
                    return Err(Error::call(Code::Unknown, "ReopenContainerLog", id, "cannot"));
                }
                self.reopen(&id);
                Ok(v1::ReopenContainerLogResponse {})
            }
        }
    };
}

not_offered! {
    version VersionRequest VersionResponse;
    run_pod_sandbox RunPodSandboxRequest RunPodSandboxResponse;
    stop_pod_sandbox StopPodSandboxRequest StopPodSandboxResponse;
    remove_pod_sandbox RemovePodSandboxRequest RemovePodSandboxResponse;
    pod_sandbox_status PodSandboxStatusRequest PodSandboxStatusResponse;
    list_pod_sandbox ListPodSandboxRequest ListPodSandboxResponse;
    create_container CreateContainerRequest CreateContainerResponse;
    start_container StartContainerRequest StartContainerResponse;
    stop_container StopContainerRequest StopContainerResponse;
    remove_container RemoveContainerRequest RemoveContainerResponse;
    status StatusRequest StatusResponse;
}
