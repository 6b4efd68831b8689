//! The runtime manager on a runtime in memory: streams, logs and stats of running pods; missing calls of old
//! runtimes.

mod configs;
mod logs;
mod stats;
mod streams;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{self as api, Pod};
use kubelet_core::runtime::streaming::{
    ClientStreams, CommandKind, PortForwarder, RemoteCommand, StreamError, StreamErrorKind, StreamingRuntime,
    StreamingServer,
};
use kubelet_core::runtime::{ContainerLogs, PodStatus};
use kubelet_core::stats::RuntimeUsages;
use kubelet_core::{Clock, NodeRuntime, PodExt, PodKey, RootDir, Runtime, RuntimeReader};
use kubelet_cri::{Code, Error, v1};
use kubelet_kuberuntime::logs::{ContainerLogManager, LogRotatePolicy, PodLogOptions};
use kubelet_kuberuntime::{
    CgroupDriver, CriNodeRuntime, CriRuntime, CriRuntimeBuilder, NodeSettings, StreamOptions,
};
use kubelet_testing::memory_cri::{Call, ExecReply, Latency, MemoryCri, MemoryCriBuilder};
use kubelet_testing::{PodBuilder, Run};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const ALL: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};

struct Rig {
    cri: MemoryCri,
    manager: CriRuntime,
    clock: Clock,
    _dir: TempDir,
}

impl Rig {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(change: impl FnOnce(MemoryCriBuilder) -> MemoryCriBuilder) -> Self {
        let clock = Clock::starting_at("2024-01-01T00:00:00Z".parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let builder = MemoryCri::builder(clock)
            .latency(Latency::none())
            .streaming_url("http://127.0.0.1:1")
            .record_looks()
            .write_logs_below(dir.path());
        let cri = change(builder).build();
        let manager = manager(&cri, clock, &dir, NodeSettings::default())
            .build()
            .await
            .unwrap();
        Self {
            cri,
            manager,
            clock,
            _dir: dir,
        }
    }

    async fn sync(&self, pod: &Arc<Pod>) -> Arc<PodStatus> {
        let status = match self.manager.pod(&pod.uid()).await.unwrap() {
            Some(listed) => self.manager.pod_status(&listed).await.unwrap(),
            None => Arc::new(PodStatus::empty(pod.uid(), pod.key(), Instant::now())),
        };
        let result = self.manager.sync_pod(pod, &status).await;
        assert!(result.is_ok(), "{:?}", result.summary());
        let listed = self.manager.pod(&pod.uid()).await.unwrap().unwrap();
        self.manager.pod_status(&listed).await.unwrap()
    }

    fn asked(&self, call: Call) -> usize {
        self.cri
            .calls()
            .all()
            .iter()
            .filter(|made| made.call == call)
            .count()
    }
}

fn manager(cri: &MemoryCri, clock: Clock, dir: &TempDir, mut node: NodeSettings) -> CriRuntimeBuilder {
    let services = Arc::new(cri.clone());
    node.root_dir = RootDir::new(dir.path().join("root"));
    node.pod_logs_dir = dir.path().join("logs");
    node.resolv_conf = None;
    CriRuntime::builder(services.clone(), services)
        .node(node)
        .clock(clock)
}

fn pod(name: &str) -> Arc<Pod> {
    let image = "docker.io/library/busybox:1.36";
    PodBuilder::new(name)
        .container("main", image, |container| container)
        .container("term", image, |container| {
            container.with(|container| container.tty = Some(true))
        })
        .container("once", image, |container| container)
        .restart_policy("Never")
        .build()
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}

fn told<T: std::fmt::Debug>(result: Result<T, Error>) -> (Code, String) {
    let error = result.unwrap_err();
    (error.code(), error.message())
}
