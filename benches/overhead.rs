//! What the runtime manager adds to the CRI calls of a pod's start.
//!
//! `cargo bench -p benches --bench overhead` measures both; needs root and containerd for the second.
//!
//! * On a runtime in memory: the time from `sync_pod` to the container running, less the time in its calls. At most 2 ms.
//! * On containerd: 100 pods at once, against the same calls made by hand in parallel. At most 5 % more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::PodStatus;
use kubelet_core::{Clock, PodExt, RootDir, Runtime};
use kubelet_cri::{CriClient, CriRuntime, Error, ImageService, NodeSettings, RuntimeService, v1};
use kubelet_testing::memory_cri::Latency;
use kubelet_testing::{Containerd, MemoryCri};
use parking_lot::Mutex;

const PODS_IN_MEMORY: usize = 1000;
const PODS_AT_ONCE: usize = 100;
const RUNS: usize = 8;

/// A call that is part of a pod's start.
#[derive(Clone)]
enum Made {
    Run(Box<v1::RunPodSandboxRequest>),
    SandboxStatus,
    Image(v1::ImageStatusRequest),
    Create(Box<v1::CreateContainerRequest>),
    Start,
}

/// Services that note what is asked, and how long they take to answer.
struct Noted<R> {
    services: R,
    nanos: AtomicU64,
    made: Mutex<Vec<Made>>,
}

impl<R> Noted<R> {
    fn new(services: R) -> Arc<Self> {
        Arc::new(Self {
            services,
            nanos: AtomicU64::new(0),
            made: Mutex::default(),
        })
    }

    async fn timed<T>(&self, made: Option<Made>, call: impl Future<Output = T>) -> T {
        self.made.lock().extend(made);
        let started = Instant::now();
        let answer = call.await;
        self.nanos
            .fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        answer
    }
}

macro_rules! noted {
    ($service:ident: $($method:ident $request:ident $response:ident $made:expr;)*) => {
        #[async_trait]
        impl<R: RuntimeService + ImageService> $service for Noted<R> {
            $(async fn $method(&self, request: v1::$request) -> Result<v1::$response, Error> {
                let note: fn(&v1::$request) -> Option<Made> = $made;
                self.timed(note(&request), self.services.$method(request)).await
            })*
        }
    };
}

noted! { RuntimeService:
    version VersionRequest VersionResponse |_| None;
    run_pod_sandbox RunPodSandboxRequest RunPodSandboxResponse |it| Some(Made::Run(Box::new(it.clone())));
    stop_pod_sandbox StopPodSandboxRequest StopPodSandboxResponse |_| None;
    remove_pod_sandbox RemovePodSandboxRequest RemovePodSandboxResponse |_| None;
    pod_sandbox_status PodSandboxStatusRequest PodSandboxStatusResponse |_| Some(Made::SandboxStatus);
    list_pod_sandbox ListPodSandboxRequest ListPodSandboxResponse |_| None;
    create_container CreateContainerRequest CreateContainerResponse |it| Some(Made::Create(Box::new(it.clone())));
    start_container StartContainerRequest StartContainerResponse |_| Some(Made::Start);
    stop_container StopContainerRequest StopContainerResponse |_| None;
    remove_container RemoveContainerRequest RemoveContainerResponse |_| None;
    list_containers ListContainersRequest ListContainersResponse |_| None;
    container_status ContainerStatusRequest ContainerStatusResponse |_| None;
    status StatusRequest StatusResponse |_| None;
}

noted! { ImageService:
    list_images ListImagesRequest ListImagesResponse |_| None;
    image_status ImageStatusRequest ImageStatusResponse |it| Some(Made::Image(it.clone()));
    pull_image PullImageRequest PullImageResponse |_| None;
    remove_image RemoveImageRequest RemoveImageResponse |_| None;
}

async fn manager<R>(services: &Arc<R>, dir: &tempfile::TempDir) -> CriRuntime
where
    R: RuntimeService + ImageService + 'static,
{
    let mut node = NodeSettings::of_this_host();
    node.root_dir = RootDir::new(dir.path().join("root"));
    node.pod_logs_dir = dir.path().join("logs");
    CriRuntime::builder(services.clone(), services.clone())
        .node(node)
        .build()
        .await
        .unwrap()
}

fn pod(number: usize) -> Arc<Pod> {
    let name = format!("pod-{number}");
    let pod = serde_json::json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": {
            "hostNetwork": true,
            "containers": [{
                "name": "main",
                "image": Containerd::BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "1000"],
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

async fn start(manager: &CriRuntime, pod: &Arc<Pod>) {
    let status = PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    let result = manager.sync_pod(pod, &status).await;
    assert!(result.is_ok(), "{:?}", result.summary());
}

async fn in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let cri = MemoryCri::builder(Clock::system())
        .latency(Latency::none())
        .build();
    cri.add_image(Containerd::BUSYBOX);
    let services = Noted::new(cri);
    let manager = manager(&services, &dir).await;
    let mut overheads = Vec::with_capacity(PODS_IN_MEMORY);
    for number in 0..PODS_IN_MEMORY {
        let pod = pod(number);
        let before = services.nanos.load(Ordering::Relaxed);
        let started = Instant::now();
        start(&manager, &pod).await;
        let took = started.elapsed();
        let calls = Duration::from_nanos(services.nanos.load(Ordering::Relaxed) - before);
        overheads.push(took.saturating_sub(calls));
    }
    overheads.sort_unstable();
    let at = |share: usize| overheads[(overheads.len() - 1) * share / 100];
    println!(
        "one pod, in memory: median {:?}, 90 % {:?}, 99 % {:?}, most {:?} beside its calls (to be held: 2 ms)",
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

/// Starts all pods at once, and tells how long it took.
async fn all_by_the_manager(client: &Arc<CriClient>) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let manager = Arc::new(manager(client, &dir).await);
    let pods: Vec<_> = (0..PODS_AT_ONCE).map(pod).collect();
    let started = Instant::now();
    let starts = pods.into_iter().map(|pod| {
        let manager = manager.clone();
        tokio::spawn(async move { start(&manager, &pod).await })
    });
    for started in join_all(starts).await {
        started.unwrap();
    }
    started.elapsed()
}

/// What the manager asks for each pod.
async fn calls_of_each(client: &CriClient, dir: &tempfile::TempDir) -> Vec<Vec<Made>> {
    let services = Noted::new(client.clone());
    let manager = manager(&services, dir).await;
    let mut calls = Vec::new();
    for number in 0..PODS_AT_ONCE {
        start(&manager, &pod(number)).await;
        calls.push(std::mem::take(&mut *services.made.lock()));
    }
    calls
}

/// Makes the same calls for all pods at once, and tells how long it took.
async fn all_by_hand(client: &CriClient, calls: &[Vec<Made>]) -> Duration {
    let started = Instant::now();
    let starts = calls.iter().cloned().map(|calls| {
        let client = client.clone();
        tokio::spawn(async move { by_hand(&client, calls).await.unwrap() })
    });
    for started in join_all(starts).await {
        started.unwrap();
    }
    started.elapsed()
}

async fn by_hand(client: &CriClient, calls: Vec<Made>) -> Result<(), Error> {
    let (mut sandbox, mut container) = (String::new(), String::new());
    for call in calls {
        match call {
            Made::Run(request) => sandbox = client.run_pod_sandbox(*request).await?.pod_sandbox_id,
            Made::SandboxStatus => {
                let request = v1::PodSandboxStatusRequest {
                    pod_sandbox_id: sandbox.clone(),
                    verbose: false,
                };
                client.pod_sandbox_status(request).await?;
            }
            Made::Image(request) => drop(client.image_status(request).await?),
            Made::Create(mut request) => {
                request.pod_sandbox_id.clone_from(&sandbox);
                container = client.create_container(*request).await?.container_id;
            }
            Made::Start => {
                let request = v1::StartContainerRequest {
                    container_id: container.clone(),
                };
                client.start_container(request).await?;
            }
        }
    }
    Ok(())
}

async fn remove_all(client: &CriClient) {
    let listed = client
        .list_pod_sandbox(v1::ListPodSandboxRequest::default())
        .await
        .unwrap();
    let removals = listed.items.into_iter().map(|sandbox| async move {
        let pod_sandbox_id = sandbox.id.clone();
        client
            .stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id })
            .await
            .unwrap();
        let pod_sandbox_id = sandbox.id;
        client
            .remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id })
            .await
            .unwrap();
    });
    join_all(removals).await;
}

async fn on_containerd() {
    let Some(containerd) = Containerd::start().await.unwrap() else {
        return;
    };
    let client = Arc::new(CriClient::connect(containerd.endpoint()).await.unwrap());
    let dir = tempfile::tempdir().unwrap();
    let calls = calls_of_each(&client, &dir).await;
    remove_all(&client).await;
    let (mut managed, mut by_hand) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        // In turns, and who is first changes: a machine has moods.
        for managers_turn in [run % 2 == 0, run % 2 != 0] {
            if managers_turn {
                managed.push(all_by_the_manager(&client).await);
            } else {
                by_hand.push(all_by_hand(&client, &calls).await);
            }
            remove_all(&client).await;
        }
    }
    // The upper of the middle two.
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let more = 100.0 * (median(&mut managed).as_secs_f64() / median(&mut by_hand).as_secs_f64() - 1.0);
    println!("100 pods at once, on containerd: {more:+.1} % (to be held: +5 %), by the medians of");
    println!("  by the manager {managed:.2?}\n  by hand        {by_hand:.2?}");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        in_memory().await;
        on_containerd().await;
    });
}
