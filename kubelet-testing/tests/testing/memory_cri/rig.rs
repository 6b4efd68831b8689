//! Shortcuts for an agent's calls.

use k8s_openapi::jiff::Timestamp;
use kubelet_core::{Clock, PodUid};
use kubelet_cri::{Code, Error, ImageService, RuntimeService, v1};
use kubelet_testing::MemoryCri;
use kubelet_testing::memory_cri::{Latency, MemoryCriBuilder};

pub(crate) const IMAGE: &str = "docker.io/library/busybox:1.36";

pub(crate) type Result<T> = std::result::Result<T, Error>;

pub(crate) fn builder() -> MemoryCriBuilder {
    MemoryCri::builder(Clock::starting_at(Timestamp::from_second(1_000_000).unwrap()))
}

/// A runtime without latencies, with the image of all containers.
pub(crate) fn instant() -> MemoryCri {
    with_image(builder().latency(Latency::none()).build())
}

pub(crate) fn with_image(runtime: MemoryCri) -> MemoryCri {
    runtime.add_image(IMAGE);
    runtime
}

pub(crate) fn uid(pod: &str) -> PodUid {
    PodUid::from(format!("uid-of-{pod}").as_str())
}

pub(crate) fn sandbox_config(pod: &str, attempt: u32) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.to_owned(),
            uid: format!("uid-of-{pod}"),
            namespace: "default".to_owned(),
            attempt,
        }),
        labels: [("pod".to_owned(), pod.to_owned())].into(),
        ..Default::default()
    }
}

pub(crate) fn container_config(name: &str, attempt: u32) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.to_owned(),
            attempt,
        }),
        image: Some(v1::ImageSpec {
            image: IMAGE.to_owned(),
            user_specified_image: "busybox:1.36".to_owned(),
            ..Default::default()
        }),
        labels: [("container".to_owned(), name.to_owned())].into(),
        ..Default::default()
    }
}

pub(crate) async fn run(runtime: &MemoryCri, pod: &str, attempt: u32) -> Result<String> {
    run_config(runtime, sandbox_config(pod, attempt)).await
}

pub(crate) async fn run_config(runtime: &MemoryCri, config: v1::PodSandboxConfig) -> Result<String> {
    let request = v1::RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: String::new(),
    };
    Ok(runtime.run_pod_sandbox(request).await?.pod_sandbox_id)
}

pub(crate) async fn create(runtime: &MemoryCri, sandbox: &str, name: &str, attempt: u32) -> Result<String> {
    create_config(runtime, sandbox, container_config(name, attempt)).await
}

pub(crate) async fn create_config(
    runtime: &MemoryCri,
    sandbox: &str,
    config: v1::ContainerConfig,
) -> Result<String> {
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_owned(),
        config: Some(config),
        sandbox_config: None,
    };
    Ok(runtime.create_container(request).await?.container_id)
}

pub(crate) async fn start(runtime: &MemoryCri, id: &str) -> Result<()> {
    let request = v1::StartContainerRequest {
        container_id: id.to_owned(),
    };
    runtime.start_container(request).await.map(|_| ())
}

/// Created and started.
pub(crate) async fn started(runtime: &MemoryCri, sandbox: &str, name: &str, attempt: u32) -> String {
    let id = create(runtime, sandbox, name, attempt).await.unwrap();
    start(runtime, &id).await.unwrap();
    id
}

pub(crate) async fn stop(runtime: &MemoryCri, id: &str, timeout: i64) -> Result<()> {
    let request = v1::StopContainerRequest {
        container_id: id.to_owned(),
        timeout,
    };
    runtime.stop_container(request).await.map(|_| ())
}

pub(crate) async fn remove(runtime: &MemoryCri, id: &str) -> Result<()> {
    let request = v1::RemoveContainerRequest {
        container_id: id.to_owned(),
    };
    runtime.remove_container(request).await.map(|_| ())
}

pub(crate) async fn status(runtime: &MemoryCri, id: &str) -> Result<v1::ContainerStatus> {
    let request = v1::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: false,
    };
    Ok(runtime.container_status(request).await?.status.unwrap())
}

pub(crate) async fn stop_sandbox(runtime: &MemoryCri, id: &str) -> Result<()> {
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: id.to_owned(),
    };
    runtime.stop_pod_sandbox(request).await.map(|_| ())
}

pub(crate) async fn remove_sandbox(runtime: &MemoryCri, id: &str) -> Result<()> {
    let request = v1::RemovePodSandboxRequest {
        pod_sandbox_id: id.to_owned(),
    };
    runtime.remove_pod_sandbox(request).await.map(|_| ())
}

pub(crate) async fn sandbox_status(runtime: &MemoryCri, id: &str) -> Result<v1::PodSandboxStatus> {
    let request = v1::PodSandboxStatusRequest {
        pod_sandbox_id: id.to_owned(),
        verbose: false,
    };
    Ok(runtime.pod_sandbox_status(request).await?.status.unwrap())
}

pub(crate) async fn exec(
    runtime: &MemoryCri,
    id: &str,
    command: &[&str],
    timeout: i64,
) -> Result<v1::ExecSyncResponse> {
    let request = v1::ExecSyncRequest {
        container_id: id.to_owned(),
        cmd: command.iter().map(|word| (*word).to_owned()).collect(),
        timeout,
    };
    runtime.exec_sync(request).await
}

pub(crate) async fn pull(runtime: &MemoryCri, image: &str, auth: Option<v1::AuthConfig>) -> Result<String> {
    let request = v1::PullImageRequest {
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        }),
        auth,
        sandbox_config: None,
    };
    Ok(runtime.pull_image(request).await?.image_ref)
}

/// State, exit code and reason.
pub(crate) async fn fate(runtime: &MemoryCri, id: &str) -> (v1::ContainerState, i32, String) {
    let status = status(runtime, id).await.unwrap();
    (status.state(), status.exit_code, status.reason)
}

/// Checks that a call failed with this code and these words in its message.
#[track_caller]
pub(crate) fn assert_refused<T: std::fmt::Debug>(answer: Result<T>, code: Code, words: &str) {
    let error = answer.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert!(error.message().contains(words), "{words:?} is not in {error}");
}
