//! The connection: a runtime that is away, a lost connection, and the next connection.

use kubelet_cri::v1::*;
use kubelet_cri::{Code, CriClient, Error, RuntimeService};
use prost::Message;
use tokio::net::{TcpListener, UnixStream};

use super::toy::{Do, Served, Toy, toy_and_client, version};

async fn list(client: &CriClient) -> Result<ListContainersResponse, Error> {
    client.list_containers(ListContainersRequest::default()).await
}

#[tokio::test]
async fn a_restarted_runtime_is_used_again() {
    let (_folder, toy, mut served, client) = toy_and_client().await;
    for _ in 0..3 {
        list(&client).await.unwrap();
        let path = served.path.clone();
        served.stop().await;
        let error = list(&client).await.unwrap_err();
        assert_eq!(
            (error.code(), error.call_name()),
            (Code::Unavailable, Some("ListContainers")),
            "{error}"
        );
        assert!(error.is_transient());

        served = Served::start(&toy, path).await;
        client.wait_ready().await.unwrap();
    }
    list(&client).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_call_under_way_fails_when_the_runtime_goes() {
    let (_folder, toy, served, client) = toy_and_client().await;
    toy.on("ListContainers", Do::Hang);
    let call = tokio::spawn({
        let client = client.clone();
        async move { list(&client).await }
    });
    toy.wait_under_way(1).await;
    served.stop().await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    toy.wait_under_way(0).await;
}

#[tokio::test]
async fn a_runtime_that_comes_late_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cri.sock");
    let client = CriClient::builder(path.to_str().unwrap()).connect_lazy().unwrap();
    let error = client.handshake().await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().contains("cri.sock"), "{error}");
    assert!(client.runtime_version().is_none());

    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait_ready().await }
    });
    let served = Served::start(&Toy::new(), path).await;
    assert_eq!(waiting.await.unwrap().unwrap().runtime_name, "toy");
    list(&client).await.unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_runtime_that_has_not_started_yet_is_waited_for() {
    let (_folder, toy, served, client) = toy_and_client().await;
    let starting = "server is not initialized yet";
    toy.on(
        "Version",
        Do::Fail(Error::call(Code::Unknown, "Version", "", starting)),
    );
    toy.requests();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.wait_ready().await }
    });
    while toy.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    toy.on("Version", Do::Answer(version("v1").encode_to_vec()));
    assert_eq!(waiting.await.unwrap().unwrap().runtime_name, "toy");
    served.stop().await;
}

#[tokio::test]
async fn a_socket_that_hangs_up_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cri.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let hang_up = tokio::spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let error = CriClient::connect(path.to_str().unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    hang_up.abort();
}

#[tokio::test]
async fn tcp_works_too() {
    let (_folder, _toy, served, _client) = toy_and_client().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let path = served.path.clone();
    let forward = tokio::spawn(async move {
        let (mut outside, _) = listener.accept().await.unwrap();
        let mut inside = UnixStream::connect(path).await.unwrap();
        tokio::io::copy_bidirectional(&mut outside, &mut inside).await
    });
    let client = CriClient::connect(endpoint.as_str()).await.unwrap();
    assert_eq!(client.endpoint(), endpoint);
    list(&client).await.unwrap();
    drop(client);
    forward.await.unwrap().unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_dropped_server_ends_its_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let toy = Toy::new();
    let served = Served::start(&toy, folder.path().join("cri.sock")).await;
    let client = CriClient::connect(served.path.to_str().unwrap()).await.unwrap();
    toy.on("ListContainers", Do::Hang);
    let call = tokio::spawn({
        let client = client.clone();
        async move { list(&client).await }
    });
    toy.wait_under_way(1).await;
    served.abort();
    assert!(call.await.unwrap().is_err());
    toy.wait_under_way(0).await;
}
