//! Lists that a client requests as streams.

use kubelet_cri::v1::*;
use kubelet_cri::{CriClient, Error, ImageService, RuntimeService};
use prost::Message;

use super::toy::{Do, Served, Toy, toy_and_client};

fn streaming(served: &Served) -> CriClient {
    let builder = CriClient::builder(served.path.to_str().unwrap());
    builder.stream_lists(true).connect_lazy().unwrap()
}

fn calls(toy: &Toy) -> Vec<&'static str> {
    toy.requests().into_iter().map(|(call, _)| call).collect()
}

#[tokio::test]
async fn each_list_is_a_stream() {
    let (_folder, toy, served, _client) = toy_and_client().await;
    let client = streaming(&served);
    let container = Container {
        id: "c".into(),
        ..Default::default()
    };
    let batch = StreamContainersResponse {
        containers: vec![container.clone(), container.clone()],
    };
    // The toy sends it twice.
    toy.on("StreamContainers", Do::Answer(batch.encode_to_vec()));
    let request = ListContainersRequest {
        filter: Some(ContainerFilter {
            pod_sandbox_id: "s".into(),
            ..Default::default()
        }),
    };
    let listed = client.list_containers(request.clone()).await.unwrap();
    assert_eq!(listed.containers, vec![container; 4]);
    let (call, sent) = toy.requests().pop().unwrap();
    assert_eq!(
        (call, StreamContainersRequest::decode(&*sent).unwrap().filter),
        ("StreamContainers", request.filter.clone())
    );
    let listed = client.listed_containers(request).await.unwrap();
    assert_eq!((listed.len(), listed[0].id()), (4, "c"));
    client.list_pod_sandbox(Default::default()).await.unwrap();
    client.listed_sandboxes(Default::default()).await.unwrap();
    client.list_container_stats(Default::default()).await.unwrap();
    client.listed_stats(Default::default()).await.unwrap();
    client.list_pod_sandbox_stats(Default::default()).await.unwrap();
    client.list_pod_sandbox_metrics(Default::default()).await.unwrap();
    client.list_images(Default::default()).await.unwrap();
    let expected = [
        "StreamContainers",
        "StreamPodSandboxes",
        "StreamPodSandboxes",
        "StreamContainerStats",
        "StreamContainerStats",
        "StreamPodSandboxStats",
        "StreamPodSandboxMetrics",
        "StreamImages",
    ];
    assert_eq!(calls(&toy), expected);
    served.stop().await;
}

#[tokio::test]
async fn a_runtime_without_streams_is_asked_once() {
    let (_folder, toy, served, _client) = toy_and_client().await;
    let client = streaming(&served);
    let none = Do::Fail(Error::unimplemented("StreamContainers"));
    toy.on("StreamContainers", none);
    for _ in 0..2 {
        client.list_containers(Default::default()).await.unwrap();
    }
    client.listed_sandboxes(Default::default()).await.unwrap();
    // The images are another service.
    client.list_images(Default::default()).await.unwrap();
    let expected = [
        "StreamContainers",
        "ListContainers",
        "ListContainers",
        "ListPodSandbox",
        "StreamImages",
    ];
    assert_eq!(calls(&toy), expected);
    served.stop().await;
}

#[tokio::test]
async fn an_error_of_a_stream_is_an_error_of_the_list() {
    let (_folder, toy, served, _client) = toy_and_client().await;
    let client = streaming(&served);
    toy.on("StreamContainers", Do::Fail(Error::internal("x", "", "broken")));
    let error = client.list_containers(Default::default()).await.unwrap_err();
    assert_eq!(error, Error::internal("StreamContainers", "", "broken"));
    toy.on("StreamContainers", Do::Answer(Vec::new()));
    client.list_containers(Default::default()).await.unwrap();
    assert_eq!(calls(&toy), ["StreamContainers", "StreamContainers"]);
    served.stop().await;
}
