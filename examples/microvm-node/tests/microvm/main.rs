//! The tests of the runtime, with a fake engine whose guests are shells.
// Clippy does not count the shared code of tests as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attach;
mod containers;
mod guide;
mod node;
mod pods;
mod restart;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubelet_cri::verbs::{
    ContainerKey, ContainerRuntime as _, ContainerSpec, Exit, Pod, PodKey, PodSpec, Result,
};
use microvm_node::MicrovmRuntime;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const ENGINE: &str = env!("CARGO_BIN_EXE_fake-hypervisor");

/// A guest that runs the command of its container: the script of the guide.
const INIT: &str = include_str!("../../guest/run");

/// A guest that answers each line that is typed, until it is asked to power off.
const ECHO: &str = r#"
trap 'echo bye; echo 7 > "$EXIT"; exit' TERM
echo booted
while read -r line; do echo "you typed $line"; done
"#;

/// A guest that does not power off when it is asked to.
const DEAF: &str = r#"
trap '' TERM
echo booted
while read -r line; do :; done
"#;

/// A runtime in a folder of its own, and its images.
struct Stage {
    vms: Arc<MicrovmRuntime>,
    dir: TempDir,
}

impl Stage {
    /// With the image `guest:latest`, whose root file system is this script.
    async fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("images/guest/latest");
        std::fs::create_dir_all(&image).unwrap();
        std::fs::write(image.join("kernel"), "a kernel").unwrap();
        std::fs::write(image.join("rootfs"), script).unwrap();
        Self { vms: open(dir.path()).await, dir }
    }

    /// With a pod that has begun.
    async fn with_pod(script: &str) -> Self {
        let stage = Self::new(script).await;
        stage.begin(0).await.unwrap();
        stage
    }

    /// The next agent on this folder.
    async fn restart(&mut self) {
        self.stop_agent().await;
        self.vms = open(self.dir.path()).await;
    }

    /// An agent on another folder takes its place: nobody follows the VMs.
    async fn stop_agent(&mut self) {
        let other = tempfile::tempdir_in(self.dir.path()).unwrap();
        self.vms = open(&other.keep()).await;
    }

    async fn begin(&self, attempt: u32) -> Result<Pod> {
        self.vms.pods().unwrap().begin(&PodSpec::new(PodKey::new("uid", attempt))).await
    }

    async fn end(&self, attempt: u32) {
        self.vms.pods().unwrap().end(&PodKey::new("uid", attempt)).await.unwrap();
    }

    async fn pods(&self) -> Vec<u32> {
        let pods = self.vms.pods().unwrap().list().await.unwrap();
        pods.iter().map(|pod| pod.key.attempt).collect()
    }

    /// A container that logs to the file `log`.
    fn spec(&self) -> ContainerSpec {
        let mut spec = ContainerSpec::new(ContainerKey::new("uid", "main", 0), "guest");
        spec.log_path = Some(self.dir.path().join("log"));
        spec
    }

    /// A container that runs this script of a shell in its guest.
    fn shell(&self, script: &str) -> ContainerSpec {
        let mut spec = self.spec();
        spec.command = ["sh", "-c", script].map(String::from).into();
        spec
    }

    /// Runs a container to its end.
    async fn run(&self, spec: &ContainerSpec) -> Exit {
        let mut ends = self.vms.events().unwrap().watch();
        self.vms.start(spec).await.unwrap();
        assert_eq!(patiently(ends.next()).await.as_ref(), Some(&spec.key));
        self.exit(spec).await.expect("it runs")
    }

    async fn exit(&self, spec: &ContainerSpec) -> Option<Exit> {
        self.vms.inspect(&spec.key).await.unwrap().exit().cloned()
    }

    /// Waits for its end.
    async fn ended(&self, spec: &ContainerSpec) -> Exit {
        until("the end", async || self.exit(spec).await).await
    }

    /// The lines of the log, without their times.
    fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    async fn says(&self, line: &str) {
        let line = format!("stdout F {line}");
        until(&line, async || self.log().contains(&line).then_some(())).await;
    }

    fn pod_dir(&self) -> PathBuf {
        self.dir.path().join("vm/pods/uid_0")
    }

    /// What the engine of the pod was asked for, without pings.
    fn requests(&self) -> Vec<(String, Value)> {
        let requests = std::fs::read_to_string(self.pod_dir().join("requests")).unwrap();
        let parse = |line: &str| {
            let [_, action, body] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
            (action.to_owned(), serde_json::from_str(body).unwrap_or_default())
        };
        requests.lines().map(parse).filter(|(action, _)| action != "vmm.ping").collect()
    }

    /// As somebody would who is not the agent.
    async fn press_power_button(&self) {
        let mut engine = tokio::net::UnixStream::connect(self.pod_dir().join("api.sock")).await.unwrap();
        let request = "PUT /api/v1/vm.power-button HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        engine.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        engine.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }

    /// Kills the engine of the pod as the kernel does when memory is short.
    async fn kill_engine(&self) {
        let stream = tokio::net::UnixStream::connect(self.pod_dir().join("api.sock")).await.unwrap();
        let pid = stream.peer_cred().unwrap().pid().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

/// Waits until an earlier agent has left the folder.
async fn open(dir: &Path) -> Arc<MicrovmRuntime> {
    let vms = until("the folder", async || {
        let builder = MicrovmRuntime::builder(dir.join("vm"), dir.join("images")).engine(ENGINE);
        // The addresses of the loopback device are there without root.
        let opened = builder.subnet("127.88.0.0/28".parse().unwrap()).open().await;
        match opened {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            opened => Some(opened.unwrap()),
        }
    });
    Arc::new(vms.await)
}

/// Waits until the value is there.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.unwrap_or_else(|_| panic!("waited for {what}"))
}

async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it takes too long")
}
