//! A runtime in a temporary folder, with short methods for its calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet_cri::process::{ProcessRuntime, ProcessRuntimeBuilder};
use kubelet_cri::{CriAdapter, Error, RuntimeService, v1};

/// A guard against hanging; no test depends on its length.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Node {
    pub(crate) processes: Arc<ProcessRuntime>,
    pub(crate) cri: CriAdapter,
    pub(crate) root: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

impl Node {
    /// On its own folder.
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(configure: impl FnOnce(ProcessRuntimeBuilder) -> ProcessRuntimeBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Self::open(dir.path(), configure).await;
        node._dir = Some(dir);
        node
    }

    /// On a folder that outlives it.
    pub(crate) async fn at(root: &Path) -> Self {
        Self::open(root, |builder| builder).await
    }

    async fn open(
        root: &Path,
        configure: impl FnOnce(ProcessRuntimeBuilder) -> ProcessRuntimeBuilder,
    ) -> Self {
        let builder = configure(ProcessRuntime::builder(root.join("processes")));
        let processes = Arc::new(builder.open().await.unwrap());
        let cri = CriAdapter::builder(processes.clone())
            .records_dir(root.join("records"))
            .build();
        Self {
            processes,
            cri,
            root: root.to_owned(),
            _dir: None,
        }
    }

    pub(crate) async fn sandbox(&self, pod: &str) -> String {
        let config = self.sandbox_config(pod);
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            ..Default::default()
        };
        self.cri.run_pod_sandbox(request).await.unwrap().pod_sandbox_id
    }

    pub(crate) fn sandbox_config(&self, pod: &str) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: pod.to_owned(),
                namespace: "default".to_owned(),
                uid: format!("uid-of-{pod}"),
                attempt: 0,
            }),
            hostname: pod.to_owned(),
            log_directory: self.root.join("logs").join(pod).display().to_string(),
            labels: [("io.kubernetes.pod.name".to_owned(), pod.to_owned())].into(),
            ..Default::default()
        }
    }

    pub(crate) async fn create(&self, sandbox: &str, config: v1::ContainerConfig) -> Result<String, Error> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: None,
        };
        Ok(self.cri.create_container(request).await?.container_id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), Error> {
        let request = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
        self.cri.start_container(request).await.map(drop)
    }

    /// A pod with one container that runs this script.
    pub(crate) async fn run(&self, pod: &str, script: &str) -> String {
        self.run_config(pod, shell(script)).await
    }

    pub(crate) async fn run_config(&self, pod: &str, config: v1::ContainerConfig) -> String {
        let sandbox = self.sandbox(pod).await;
        let id = self.create(&sandbox, config).await.unwrap();
        self.start(&id).await.unwrap();
        id
    }

    pub(crate) async fn status(&self, id: &str) -> v1::ContainerStatus {
        let answer = self.cri.container_status(status_request(id)).await.unwrap();
        answer.status.unwrap()
    }

    /// The pid of a running container, as the runtime reports it.
    pub(crate) async fn pid(&self, id: &str) -> i32 {
        let answer = self.cri.container_status(status_request(id)).await.unwrap();
        answer.info["pid"].parse().unwrap()
    }

    /// The status of a container once it has ended.
    pub(crate) async fn exited(&self, id: &str) -> v1::ContainerStatus {
        let ended = async {
            let mut events = self.events().await;
            loop {
                let status = self.status(id).await;
                if status.state() == v1::ContainerState::ContainerExited {
                    return status;
                }
                events.next().await.unwrap().unwrap();
            }
        };
        patiently(ended).await
    }

    pub(crate) async fn events(&self) -> BoxStream<'static, Result<v1::ContainerEventResponse, Error>> {
        self.cri
            .get_container_events(v1::GetEventsRequest {})
            .await
            .unwrap()
    }

    pub(crate) async fn stop(&self, id: &str, timeout: i64) {
        let request = v1::StopContainerRequest {
            container_id: id.to_owned(),
            timeout,
        };
        patiently(self.cri.stop_container(request)).await.unwrap();
    }

    pub(crate) async fn remove(&self, id: &str) {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        patiently(self.cri.remove_container(request)).await.unwrap();
    }

    pub(crate) async fn exec(
        &self,
        id: &str,
        command: &[&str],
        timeout: i64,
    ) -> Result<v1::ExecSyncResponse, Error> {
        let request = v1::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout,
        };
        patiently(self.cri.exec_sync(request)).await
    }

    pub(crate) async fn list(&self, filter: v1::ContainerFilter) -> Vec<v1::Container> {
        let request = v1::ListContainersRequest { filter: Some(filter) };
        self.cri.list_containers(request).await.unwrap().containers
    }

    /// The log of a container, each line without its time.
    pub(crate) async fn log(&self, id: &str) -> Vec<String> {
        let path = self.status(id).await.log_path;
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines()
            .map(|line| {
                let (time, rest) = line.split_once(' ').unwrap();
                assert!(
                    time.ends_with('Z') && time.parse::<k8s_openapi::jiff::Timestamp>().is_ok(),
                    "{line}"
                );
                rest.to_owned()
            })
            .collect()
    }

    /// Waits until the log of a container is this.
    pub(crate) async fn log_says(&self, id: &str, expected: &str) {
        let path = PathBuf::from(self.status(id).await.log_path);
        file_says(&path, expected).await;
    }
}

/// Waits until a file contains this text.
pub(crate) async fn file_says(path: &Path, expected: &str) {
    until(|| std::fs::read_to_string(path).is_ok_and(|text| text.contains(expected))).await;
}

/// Polls until a condition holds, where there is no notification.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    patiently(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("it takes too long")
}

fn status_request(id: &str) -> v1::ContainerStatusRequest {
    v1::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: true,
    }
}

pub(crate) fn shell(script: &str) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: "main".to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: "busybox:1.36".to_owned(),
            ..Default::default()
        }),
        command: ["sh", "-c", script].map(str::to_owned).into(),
        labels: [("io.kubernetes.container.name".to_owned(), "main".to_owned())].into(),
        annotations: [("io.kubernetes.container.hash".to_owned(), "e3b3a006".to_owned())].into(),
        log_path: "main/0.log".to_owned(),
        ..Default::default()
    }
}

/// How long a process of this test sleeps, in seconds: practically for ever, and a unique number, so that the test
/// finds the process by it.
pub(crate) fn nap(number: u32) -> String {
    format!("{number}{:0>7}", run())
}

/// Distinguishes this run of the tests from others on the same host.
pub(crate) fn run() -> String {
    std::env::var(RUN).unwrap_or_else(|_| std::process::id().to_string())
}

/// The environment variable that passes [`run`] on to an agent.
pub(crate) const RUN: &str = "KUBELET_CRI_TEST_RUN";

/// The pids of processes that have this among their arguments and have not ended.
pub(crate) fn sleepers(number: u32) -> Vec<i32> {
    let argument = nap(number);
    let proc = std::fs::read_dir("/proc").unwrap();
    proc.filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
            .then_some(pid)
    })
    .collect()
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}
