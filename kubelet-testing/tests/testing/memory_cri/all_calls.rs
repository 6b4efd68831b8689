//! All 41 calls through a real socket, in real time.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use kubelet_cri::{Code, CriClient, CriServer, CriSocket, Error, ImageService, RuntimeService, v1};
use kubelet_testing::memory_cri::{Call, CriCall, Latency};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::rig::*;

/// The result of a call: success, or its code.
fn code<T>(answer: std::result::Result<T, Error>) -> Code {
    answer.map_or_else(|error| error.code(), |_| Code::Ok)
}

#[tokio::test]
#[expect(
    clippy::needless_update,
    reason = "one macro for messages with and without other fields"
)]
async fn every_call_is_answered_through_the_socket() {
    let folder = TempDir::new().unwrap();
    let runtime = builder().latency(Latency::none()).record_looks().build();
    let path = folder.path().join("cri.sock");
    let socket = CriSocket::bind(&path, 0o600).await.unwrap();
    let shutdown = CancellationToken::new();
    let server = CriServer::new(Arc::new(runtime.clone()), Arc::new(runtime.clone()));
    let serving = tokio::spawn(server.serve(socket, shutdown.clone()));
    let client = CriClient::connect(format!("unix://{}", path.display()))
        .await
        .unwrap();

    let mut events = client
        .get_container_events(v1::GetEventsRequest {})
        .await
        .unwrap();
    let sandbox = run_pod(&client).await;
    let image = Some(v1::ImageSpec {
        image: IMAGE.to_owned(),
        ..Default::default()
    });
    let request = v1::PullImageRequest {
        image: image.clone(),
        ..Default::default()
    };
    client.pull_image(request).await.unwrap();
    let request = v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.clone(),
        config: Some(container_config("main", 0)),
        sandbox_config: None,
    };
    let main = client.create_container(request).await.unwrap().container_id;
    let (id, pod) = (|| main.clone(), || sandbox.clone());
    client
        .start_container(v1::StartContainerRequest { container_id: id() })
        .await
        .unwrap();

    macro_rules! codes {
        ($($method:ident($request:ident { $($field:ident: $value:expr),* }) $code:ident;)*) => {
            $(
                let answer = client.$method(v1::$request { $($field: $value,)* ..Default::default() }).await;
                // A stream may return the error as its first item.
                let answer = codes!(@first $method answer);
                assert_eq!(code(answer), Code::$code, stringify!($method));
            )*
        };
        (@first stream_pod_sandboxes $answer:ident) => { codes!(@stream $answer) };
        (@first stream_containers $answer:ident) => { codes!(@stream $answer) };
        (@first stream_container_stats $answer:ident) => { codes!(@stream $answer) };
        (@first stream_pod_sandbox_stats $answer:ident) => { codes!(@stream $answer) };
        (@first stream_pod_sandbox_metrics $answer:ident) => { codes!(@stream $answer) };
        (@first stream_images $answer:ident) => { codes!(@stream $answer) };
        (@first $method:ident $answer:ident) => { $answer };
        (@stream $answer:ident) => { $answer.unwrap().next().await.unwrap() };
    }
    codes! {
        version(VersionRequest {}) Ok;
        status(StatusRequest { verbose: true }) Ok;
        runtime_config(RuntimeConfigRequest {}) Ok;
        update_runtime_config(UpdateRuntimeConfigRequest {}) Ok;
        pod_sandbox_status(PodSandboxStatusRequest { pod_sandbox_id: pod() }) Ok;
        list_pod_sandbox(ListPodSandboxRequest {}) Ok;
        stream_pod_sandboxes(StreamPodSandboxesRequest {}) Ok;
        list_containers(ListContainersRequest {}) Ok;
        stream_containers(StreamContainersRequest {}) Ok;
        container_status(ContainerStatusRequest { container_id: id() }) Ok;
        update_container_resources(UpdateContainerResourcesRequest { container_id: id() }) Ok;
        update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest { pod_sandbox_id: pod() }) Ok;
        reopen_container_log(ReopenContainerLogRequest { container_id: id() }) Ok;
        exec_sync(ExecSyncRequest { container_id: id(), cmd: vec!["true".to_owned()] }) Ok;
        exec(ExecRequest { container_id: id(), cmd: vec!["true".to_owned()], stdout: true }) Unimplemented;
        attach(AttachRequest { container_id: id(), stdout: true }) Unimplemented;
        port_forward(PortForwardRequest { pod_sandbox_id: pod() }) Unimplemented;
        checkpoint_container(CheckpointContainerRequest { container_id: id() }) Unimplemented;
        container_stats(ContainerStatsRequest { container_id: id() }) Ok;
        list_container_stats(ListContainerStatsRequest {}) Ok;
        stream_container_stats(StreamContainerStatsRequest {}) Ok;
        pod_sandbox_stats(PodSandboxStatsRequest { pod_sandbox_id: pod() }) Ok;
        list_pod_sandbox_stats(ListPodSandboxStatsRequest {}) Ok;
        stream_pod_sandbox_stats(StreamPodSandboxStatsRequest {}) Ok;
        list_metric_descriptors(ListMetricDescriptorsRequest {}) Ok;
        list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}) Ok;
        stream_pod_sandbox_metrics(StreamPodSandboxMetricsRequest {}) Ok;
        image_status(ImageStatusRequest { image: image.clone() }) Ok;
        list_images(ListImagesRequest {}) Ok;
        stream_images(StreamImagesRequest {}) Ok;
        image_fs_info(ImageFsInfoRequest {}) Ok;
        stop_container(StopContainerRequest { container_id: id(), timeout: 1 }) Ok;
        remove_container(RemoveContainerRequest { container_id: id() }) Ok;
        stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod() }) Ok;
        remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod() }) Ok;
        remove_image(RemoveImageRequest { image: image.clone() }) Ok;
    }
    let called: BTreeSet<Call> = runtime
        .calls()
        .all()
        .iter()
        .map(|call: &CriCall| call.call)
        .collect();
    assert_eq!(called, BTreeSet::from(Call::ALL));

    for kind in [
        "CREATED", "STARTED", "CREATED", "STARTED", "STOPPED", "DELETED", "STOPPED", "DELETED",
    ] {
        let event = events.next().await.unwrap().unwrap();
        assert_eq!(
            event.container_event_type().as_str_name(),
            format!("CONTAINER_{kind}_EVENT")
        );
    }
    runtime.crash();
    assert_eq!(code(events.next().await.unwrap()), Code::Unavailable);
    assert_eq!(
        code(client.version(v1::VersionRequest::default()).await),
        Code::Unavailable
    );
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

async fn run_pod(client: &CriClient) -> String {
    let request = v1::RunPodSandboxRequest {
        config: Some(sandbox_config("web", 0)),
        runtime_handler: String::new(),
    };
    client.run_pod_sandbox(request).await.unwrap().pod_sandbox_id
}

#[tokio::test(start_paused = true)]
async fn streams_lead_where_the_test_says() {
    let runtime = with_image(builder().streaming_url("http://127.0.0.1:10010").build());
    let sandbox = run(&runtime, "web", 0).await.unwrap();
    let id = create(&runtime, &sandbox, "main", 0).await.unwrap();
    let exec = || {
        runtime.exec(v1::ExecRequest {
            container_id: id.clone(),
            ..Default::default()
        })
    };
    assert_refused(
        exec().await,
        Code::Unknown,
        "container is in CONTAINER_CREATED state",
    );
    start(&runtime, &id).await.unwrap();
    let url = exec().await.unwrap().url;
    assert!(url.starts_with("http://127.0.0.1:10010/exec/"), "{url}");
    let request = v1::PortForwardRequest {
        pod_sandbox_id: "nope".to_owned(),
        ..Default::default()
    };
    assert_refused(
        runtime.port_forward(request).await,
        Code::NotFound,
        "failed to find sandbox \"nope\": not found",
    );
}
