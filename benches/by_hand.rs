//! The CRI calls that start pods: recorded from the runtime manager, and replayed by hand.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::PodStatus;
use kubelet_core::{PodExt, RootDir, Runtime};
use kubelet_cri::{CriClient, Error, ImageService, RuntimeService, v1};
use kubelet_kuberuntime::{CriRuntime, NodeSettings};
use parking_lot::Mutex;

/// A call that is part of the start of a pod.
#[derive(Clone)]
pub(crate) enum Made {
    Run(Box<v1::RunPodSandboxRequest>),
    SandboxStatus,
    Image(v1::ImageStatusRequest),
    Create(Box<v1::CreateContainerRequest>),
    Start,
}

/// Services that record the calls, and how long each call takes.
pub(crate) struct Noted<R> {
    services: R,
    pub(crate) nanos: AtomicU64,
    made: Mutex<Vec<Made>>,
}

impl<R> Noted<R> {
    pub(crate) fn new(services: R) -> Arc<Self> {
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

/// A manager with its files in this folder.
pub(crate) async fn manager<R>(services: &Arc<R>, dir: &Path) -> CriRuntime
where
    R: RuntimeService + ImageService + 'static,
{
    let mut node = NodeSettings::of_this_host();
    node.root_dir = RootDir::new(dir.join("root"));
    node.pod_logs_dir = dir.join("logs");
    CriRuntime::builder(services.clone(), services.clone())
        .node(node)
        .build()
        .await
        .unwrap()
}

pub(crate) async fn start(manager: &CriRuntime, pod: &Arc<Pod>) {
    let status = PodStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    let result = manager.sync_pod(pod, &status).await;
    assert!(result.is_ok(), "{:?}", result.summary());
}

/// The calls that a manager makes to this runtime to start each of these pods.
pub(crate) async fn calls_of_each(client: &CriClient, dir: &Path, pods: &[Arc<Pod>]) -> Vec<Vec<Made>> {
    let services = Noted::new(client.clone());
    let manager = manager(&services, dir).await;
    let mut calls = Vec::with_capacity(pods.len());
    for pod in pods {
        start(&manager, pod).await;
        calls.push(std::mem::take(&mut *services.made.lock()));
    }
    calls
}

/// Makes a pod's calls, and returns the ids of its sandbox and its container.
pub(crate) async fn by_hand(client: &CriClient, calls: Vec<Made>) -> Result<(String, String), Error> {
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
    Ok((sandbox, container))
}

/// Stops and removes all pods concurrently. Their containers are killed.
pub(crate) async fn remove_all(client: &CriClient) {
    loop {
        let listed = client.list_pod_sandbox(v1::ListPodSandboxRequest::default());
        let listed = listed.await.unwrap().items;
        if listed.is_empty() {
            return;
        }
        // This fails for a pod that is already being removed.
        join_all(listed.into_iter().map(|sandbox| remove(client, sandbox.id))).await;
    }
}

/// Stops and removes a pod. Its containers are killed.
pub(crate) async fn remove(client: &CriClient, pod_sandbox_id: String) -> Result<(), Error> {
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: pod_sandbox_id.clone(),
    };
    client.stop_pod_sandbox(request).await?;
    let request = v1::RemovePodSandboxRequest { pod_sandbox_id };
    client.remove_pod_sandbox(request).await?;
    Ok(())
}
