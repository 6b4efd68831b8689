//! The relist of the generic PLEG through a real unix socket: 1,000 pods of two containers, idle, from our server over
//! our client and the generic runtime manager; beside it what decoding the two list responses costs, and what the two
//! calls cost without anything made of them.
//!
//! `cargo bench -p benches --bench pleg_socket`
//!
//! The server has a thread of its own, as a runtime has its own process.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::panic, reason = "a bench ends where it cannot go on")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use criterion::{Criterion, criterion_group, criterion_main};
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{PodCache, PodUid, Result, RuntimeReader};
use kubelet_cri::{CriClient, CriRuntime, CriServer, CriSocket, Error, ImageService, RuntimeService, v1};
use kubelet_pleg::GenericPleg;
use prost::Message;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const PODS: usize = 1_000;

/// A runtime whose pods run and do nothing else.
struct Served {
    sandboxes: v1::ListPodSandboxResponse,
    containers: v1::ListContainersResponse,
}

type Answer<T> = std::result::Result<T, Error>;

#[async_trait]
impl RuntimeService for Served {
    async fn version(&self, _request: v1::VersionRequest) -> Answer<v1::VersionResponse> {
        Ok(v1::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "containerd".to_owned(),
            runtime_version: "2.0.0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }
    async fn list_pod_sandbox(&self, _: v1::ListPodSandboxRequest) -> Answer<v1::ListPodSandboxResponse> {
        Ok(self.sandboxes.clone())
    }
    async fn list_containers(&self, _: v1::ListContainersRequest) -> Answer<v1::ListContainersResponse> {
        Ok(self.containers.clone())
    }
    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let mut found = self.sandboxes.items.iter();
        let found = found.find(|sandbox| sandbox.id == request.pod_sandbox_id);
        let status = found.map(|sandbox| v1::PodSandboxStatus {
            id: sandbox.id.clone(),
            metadata: sandbox.metadata.clone(),
            state: sandbox.state,
            created_at: sandbox.created_at,
            ..Default::default()
        });
        Ok(v1::PodSandboxStatusResponse {
            status,
            ..Default::default()
        })
    }
    async fn container_status(
        &self,
        request: v1::ContainerStatusRequest,
    ) -> Answer<v1::ContainerStatusResponse> {
        let mut found = self.containers.containers.iter();
        let found = found.find(|container| container.id == request.container_id);
        let status = found.map(|container| v1::ContainerStatus {
            id: container.id.clone(),
            metadata: container.metadata.clone(),
            state: container.state,
            created_at: container.created_at,
            started_at: container.created_at,
            image: container.image.clone(),
            image_ref: container.image_ref.clone(),
            labels: container.labels.clone(),
            annotations: container.annotations.clone(),
            ..Default::default()
        });
        Ok(v1::ContainerStatusResponse {
            status,
            ..Default::default()
        })
    }
    async fn run_pod_sandbox(&self, _: v1::RunPodSandboxRequest) -> Answer<v1::RunPodSandboxResponse> {
        Err(Error::unimplemented("RunPodSandbox"))
    }
    async fn stop_pod_sandbox(&self, _: v1::StopPodSandboxRequest) -> Answer<v1::StopPodSandboxResponse> {
        Err(Error::unimplemented("StopPodSandbox"))
    }
    async fn remove_pod_sandbox(
        &self,
        _: v1::RemovePodSandboxRequest,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        Err(Error::unimplemented("RemovePodSandbox"))
    }
    async fn create_container(&self, _: v1::CreateContainerRequest) -> Answer<v1::CreateContainerResponse> {
        Err(Error::unimplemented("CreateContainer"))
    }
    async fn start_container(&self, _: v1::StartContainerRequest) -> Answer<v1::StartContainerResponse> {
        Err(Error::unimplemented("StartContainer"))
    }
    async fn stop_container(&self, _: v1::StopContainerRequest) -> Answer<v1::StopContainerResponse> {
        Err(Error::unimplemented("StopContainer"))
    }
    async fn remove_container(&self, _: v1::RemoveContainerRequest) -> Answer<v1::RemoveContainerResponse> {
        Err(Error::unimplemented("RemoveContainer"))
    }
    async fn status(&self, _: v1::StatusRequest) -> Answer<v1::StatusResponse> {
        Err(Error::unimplemented("Status"))
    }
}

#[async_trait]
impl ImageService for Served {
    async fn list_images(&self, _: v1::ListImagesRequest) -> Answer<v1::ListImagesResponse> {
        Err(Error::unimplemented("ListImages"))
    }
    async fn image_status(&self, _: v1::ImageStatusRequest) -> Answer<v1::ImageStatusResponse> {
        Err(Error::unimplemented("ImageStatus"))
    }
    async fn pull_image(&self, _: v1::PullImageRequest) -> Answer<v1::PullImageResponse> {
        Err(Error::unimplemented("PullImage"))
    }
    async fn remove_image(&self, _: v1::RemoveImageRequest) -> Answer<v1::RemoveImageResponse> {
        Err(Error::unimplemented("RemoveImage"))
    }
    async fn image_fs_info(&self, _: v1::ImageFsInfoRequest) -> Answer<v1::ImageFsInfoResponse> {
        Err(Error::unimplemented("ImageFsInfo"))
    }
}

impl Served {
    /// As a kubelet labels and annotates them.
    fn new() -> Self {
        let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
        for index in 0..PODS {
            let (uid, name) = (
                format!("8f6f3a52-7c1d-4b0e-9a55-{index:012}"),
                format!("pod-{index}"),
            );
            let created_at = 1_700_000_000_000_000_000 + index as i64 * 1_000_000;
            let id = |kind: &str| format!("{kind:0>8}{index:056}");
            let labels = texts(&[
                ("io.kubernetes.pod.name", &name),
                ("io.kubernetes.pod.namespace", "bench"),
                ("io.kubernetes.pod.uid", &uid),
            ]);
            let mut sandbox_labels = labels.clone();
            sandbox_labels.extend(texts(&[("app", "web"), ("pod-template-hash", "5d59d67564")]));
            sandboxes.push(v1::PodSandbox {
                id: id("5"),
                metadata: Some(v1::PodSandboxMetadata {
                    name: name.clone(),
                    uid: uid.clone(),
                    namespace: "bench".to_owned(),
                    attempt: 0,
                }),
                state: v1::PodSandboxState::SandboxReady as i32,
                created_at,
                labels: sandbox_labels,
                annotations: texts(&[
                    ("kubernetes.io/config.seen", "2026-01-01T00:00:00.000000000Z"),
                    ("kubernetes.io/config.source", "api"),
                ]),
                ..Default::default()
            });
            for container in ["a", "b"] {
                let mut labels = labels.clone();
                labels.extend(texts(&[("io.kubernetes.container.name", container)]));
                let image = format!("sha256:{:064x}", 7);
                containers.push(v1::Container {
                    id: id(container),
                    pod_sandbox_id: id("5"),
                    metadata: Some(v1::ContainerMetadata {
                        name: container.to_owned(),
                        attempt: 0,
                    }),
                    image: Some(v1::ImageSpec {
                        image: image.clone(),
                        ..Default::default()
                    }),
                    image_ref: image.clone(),
                    image_id: image,
                    state: v1::ContainerState::ContainerRunning as i32,
                    created_at,
                    labels,
                    annotations: texts(&[
                        ("io.kubernetes.container.hash", "5f3b1c2d"),
                        ("io.kubernetes.container.restartCount", "0"),
                        (
                            "io.kubernetes.container.terminationMessagePath",
                            "/dev/termination-log",
                        ),
                        ("io.kubernetes.container.terminationMessagePolicy", "File"),
                        ("io.kubernetes.pod.terminationGracePeriod", "30"),
                    ]),
                });
            }
        }
        Self {
            sandboxes: v1::ListPodSandboxResponse { items: sandboxes },
            containers: v1::ListContainersResponse { containers },
        }
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Says when a list begins.
struct Watched {
    runtime: CriRuntime,
    begun: watch::Sender<Option<(Instant, tokio::time::Instant)>>,
}

#[async_trait]
impl RuntimeReader for Watched {
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        // Before, so that only this very list can be newer.
        let before = tokio::time::Instant::now() - Duration::from_micros(50);
        self.begun.send_replace(Some((Instant::now(), before)));
        self.runtime.pods(all).await
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<PodStatus> {
        self.runtime.pod_status(pod).await
    }
}

fn serve(
    served: Arc<Served>,
    path: std::path::PathBuf,
    shutdown: CancellationToken,
) -> std::thread::JoinHandle<()> {
    let (bound, is_bound) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().block_on(async move {
            let socket = CriSocket::bind(&path, 0o600).await;
            let socket = socket.unwrap_or_else(|error| panic!("{error}"));
            let _ = bound.send(());
            let _ = CriServer::new(served.clone(), served)
                .serve(socket, shutdown)
                .await;
        });
    });
    let _ = is_bound.recv();
    thread
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| panic!("{error}"))
}

fn relist(criterion: &mut Criterion) {
    let served = Arc::new(Served::new());
    let responses = [
        served.sandboxes.encode_to_vec(),
        served.containers.encode_to_vec(),
    ];
    criterion.bench_function("decode the two list responses, 1000 pods", |bencher| {
        bencher.iter(|| {
            let [sandboxes, containers] = black_box(&responses);
            let sandboxes = v1::ListPodSandboxResponse::decode(&sandboxes[..]);
            let containers = v1::ListContainersResponse::decode(&containers[..]);
            (sandboxes, containers)
        });
    });
    criterion.bench_function(
        "clone and encode them, as the server does, 1000 pods",
        |bencher| {
            bencher.iter(|| {
                let served = black_box(&served);
                let sandboxes = served.sandboxes.clone().encode_to_vec();
                (sandboxes, served.containers.clone().encode_to_vec())
            });
        },
    );

    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("cri.sock");
    let shutdown = CancellationToken::new();
    let server = serve(served, path.clone(), shutdown.clone());
    let tokio = runtime();
    let client = tokio.block_on(CriClient::connect(format!("unix://{}", path.display())));
    let client = Arc::new(client.unwrap_or_else(|error| panic!("{error}")));
    criterion.bench_function("the two calls through a socket, 1000 pods", |bencher| {
        bencher.iter(|| {
            tokio.block_on(async {
                let sandboxes = client
                    .list_pod_sandbox(v1::ListPodSandboxRequest::default())
                    .await;
                (
                    sandboxes,
                    client.list_containers(v1::ListContainersRequest::default()).await,
                )
            })
        });
    });

    let manager = CriRuntime::builder(client.clone(), client)
        .root_dir(folder.path().join("root"))
        .pod_logs_dir(folder.path().join("logs"))
        .build();
    let manager = tokio.block_on(manager).unwrap_or_else(|error| panic!("{error}"));
    criterion.bench_function("the list of pods through a socket, 1000 pods", |bencher| {
        bencher.iter(|| tokio.block_on(manager.pods(true)));
    });

    let (begun, mut lists) = watch::channel(None);
    let cache = PodCache::new();
    let watched = Watched {
        runtime: manager,
        begun,
    };
    let pleg =
        GenericPleg::new(Arc::new(watched), cache.clone()).with_relist_period(Duration::from_millis(1));
    let watching = tokio.spawn(pleg.run(shutdown.clone()));
    let any = PodUid::new("");
    tokio.block_on(async {
        for index in 0..PODS {
            let uid = PodUid::from(format!("8f6f3a52-7c1d-4b0e-9a55-{index:012}"));
            let _ = cache.get_observed(&uid).await;
        }
    });
    criterion.bench_function("idle relist through a socket, 1000 pods", |bencher| {
        bencher.iter_custom(|turns| {
            tokio.block_on(async {
                let mut total = Duration::ZERO;
                for _ in 0..turns {
                    lists.mark_unchanged();
                    let _ = lists.changed().await;
                    let Some((begun, before)) = *lists.borrow_and_update() else {
                        continue;
                    };
                    let _ = cache.get_newer_than(&any, before).await;
                    total += begun.elapsed();
                }
                total
            })
        });
    });
    shutdown.cancel();
    let _ = tokio.block_on(watching);
    let _ = server.join();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .sample_size(30);
    targets = relist
}
criterion_main!(benches);
