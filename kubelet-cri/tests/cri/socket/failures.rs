//! Errors, deadlines and sizes.

use std::time::Duration;

use kubelet_cri::v1::*;
use kubelet_cri::{Code, CriClient, Error, ImageService, RuntimeService};
use prost::Message;

use super::toy::{Do, toy_and_client, version};

const MIB: usize = 1024 * 1024;

fn about(container_id: &str) -> StopContainerRequest {
    StopContainerRequest {
        container_id: container_id.into(),
        timeout: 0,
    }
}

#[tokio::test]
async fn an_error_keeps_code_call_id_and_message() {
    let (_folder, toy, served, client) = toy_and_client().await;
    for code in Code::ALL {
        // The names that the server's error has do not count: they are not sent.
        toy.on(
            "StopContainer",
            Do::Fail(Error::call(code, "X", "y", "went wrong: ü\n%")),
        );
        let error = client.stop_container(about("abc")).await.unwrap_err();
        // OK is no error, so it cannot come back as one.
        let code = if code == Code::Ok { Code::Unknown } else { code };
        assert_eq!(
            error,
            Error::call(code, "StopContainer", "abc", "went wrong: ü\n%")
        );
    }

    toy.on("PullImage", Do::Fail(Error::not_found("PullImage", "busybox:9")));
    let image = ImageSpec {
        image: "busybox:9".into(),
        ..Default::default()
    };
    let error = client
        .pull_image(PullImageRequest {
            image: Some(image),
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(
        (error.call_name(), error.id()),
        (Some("PullImage"), Some("busybox:9"))
    );
    served.stop().await;
}

#[tokio::test]
async fn a_useless_answer_is_an_error() {
    let (_folder, _toy, served, client) = toy_and_client().await;
    let metadata = PodSandboxMetadata {
        name: "web".into(),
        namespace: "default".into(),
        ..Default::default()
    };
    let config = PodSandboxConfig {
        metadata: Some(metadata),
        ..Default::default()
    };
    let request = RunPodSandboxRequest {
        config: Some(config),
        ..Default::default()
    };
    let error = client.run_pod_sandbox(request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"RunPodSandbox "default/web": invalid answer of the runtime: not set: pod_sandbox_id"#
    );
    served.stop().await;
}

#[tokio::test]
async fn a_hung_call_ends_at_its_deadline_and_holds_up_no_other() {
    let (_folder, toy, served, client) = toy_and_client().await;
    toy.on("StopContainer", Do::Hang);
    toy.on("StreamContainers", Do::Hang);
    toy.on("GetContainerEvents", Do::Hang);
    let after = Duration::from_millis(20);
    let hasty = CriClient::builder(served.path.to_str().unwrap())
        .timeout(after)
        .connect_lazy()
        .unwrap();

    let error = hasty.stop_container(about("abc")).await.unwrap_err();
    assert_eq!(
        error,
        Error::Timeout {
            call: "StopContainer",
            id: "abc".into(),
            after
        }
    );
    assert!(error.is_timeout() && error.is_transient());
    toy.wait_under_way(0).await; // Cancelled at the runtime too.

    let error = hasty
        .stream_containers(StreamContainersRequest::default())
        .await
        .err()
        .unwrap();
    assert_eq!(
        error,
        Error::Timeout {
            call: "StreamContainers",
            id: String::new(),
            after
        }
    );

    let patient = client.clone();
    let hung = tokio::spawn(async move { patient.stop_container(about("abc")).await });
    toy.wait_under_way(1).await;
    client
        .list_containers(ListContainersRequest::default())
        .await
        .unwrap();
    assert!(!hung.is_finished());
    hung.abort();
    toy.wait_under_way(0).await;
    served.stop().await;
}

#[tokio::test]
async fn messages_may_have_16_mib_either_way() {
    let (_folder, toy, served, client) = toy_and_client().await;
    let exec = |size: usize| ExecSyncRequest {
        container_id: "abc".into(),
        cmd: vec!["x".repeat(size)],
        timeout: 0,
    };
    let output = |size: usize| ExecSyncResponse {
        stdout: vec![b'x'; size],
        ..Default::default()
    };

    for size in [5 * MIB, 16 * MIB - 64] {
        toy.on("ExecSync", Do::Answer(output(size).encode_to_vec()));
        let answer = client.exec_sync(exec(size)).await.unwrap();
        assert_eq!(answer.stdout.len(), size);
        assert_eq!(toy.requests()[0].1.len(), exec(size).encoded_len());
    }

    // A message that is too large fails only its own call, and the error names that call.
    let error = client.exec_sync(exec(17 * MIB)).await.unwrap_err();
    assert_eq!((error.call_name(), error.id()), (Some("ExecSync"), Some("abc")));
    assert!(toy.requests().is_empty() && !error.is_transient(), "{error}");
    toy.on("ExecSync", Do::Answer(output(17 * MIB).encode_to_vec()));
    let error = client.exec_sync(exec(0)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    toy.on("ExecSync", Do::Answer(Vec::new()));
    client.exec_sync(exec(0)).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn the_handshake_refuses_what_is_not_v1() {
    let (_folder, toy, served, client) = toy_and_client().await;
    let endpoint = format!("unix://{}", served.path.display());
    assert_eq!(client.endpoint(), endpoint);
    assert_eq!(*client.runtime_version().unwrap(), version("v1"));

    toy.on("Version", Do::Answer(version("v1alpha2").encode_to_vec()));
    let error = CriClient::connect(endpoint.as_str()).await.unwrap_err();
    assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains(&endpoint) && text.contains("toy 1.2.3") && text.contains("v1alpha2"),
        "{text}"
    );

    toy.on("Version", Do::Fail(Error::unimplemented("Version")));
    let error = CriClient::connect(endpoint.as_str()).await.unwrap_err();
    assert!(matches!(error, Error::UnsupportedVersion { .. }), "{error}");
    // Another try cannot solve this error.
    assert_eq!(client.wait_ready().await.unwrap_err(), error);

    toy.on("Version", Do::Answer(Vec::new()));
    let error = CriClient::connect(endpoint).await.unwrap_err();
    assert!(matches!(error, Error::InvalidResponse { .. }), "{error}");
    served.stop().await;
}
