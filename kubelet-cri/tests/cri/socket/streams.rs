//! Streaming calls: what ends them.

use std::time::Duration;

use futures::StreamExt;
use kubelet_cri::v1::*;
use kubelet_cri::{Code, CriClient, Error, RuntimeService};
use prost::Message;

use super::toy::{Do, toy_and_client};

fn event(container_id: &str) -> ContainerEventResponse {
    ContainerEventResponse {
        container_id: container_id.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_dropped_stream_is_cancelled_at_the_runtime() {
    let (_folder, toy, served, client) = toy_and_client().await;
    toy.on("GetContainerEvents", Do::Endless(event("abc").encode_to_vec()));
    let mut events = client.get_container_events(GetEventsRequest {}).await.unwrap();
    assert_eq!(events.next().await, Some(Ok(event("abc"))));
    toy.wait_under_way(1).await;
    drop(events);
    toy.wait_under_way(0).await;
    served.stop().await;
}

#[tokio::test]
async fn events_are_open_before_the_first_one() {
    let (_folder, toy, served, client) = toy_and_client().await;
    // As a server written with grpc-go: not even headers.
    toy.on("GetContainerEvents", Do::Hang);
    let events = client.get_container_events(GetEventsRequest {}).await.unwrap();
    toy.wait_under_way(1).await;
    drop(events);
    toy.wait_under_way(0).await;
    served.stop().await;
}

#[tokio::test]
async fn the_shutdown_ends_a_stream_with_an_error() {
    let (_folder, toy, served, client) = toy_and_client().await;
    toy.on("GetContainerEvents", Do::Endless(event("abc").encode_to_vec()));
    let mut events = client.get_container_events(GetEventsRequest {}).await.unwrap();
    assert_eq!(events.next().await, Some(Ok(event("abc"))));
    served.stop().await;
    let error = events.next().await.unwrap().unwrap_err();
    assert_eq!(
        (error.code(), error.call_name()),
        (Code::Unavailable, Some("GetContainerEvents"))
    );
    assert_eq!(events.next().await, None, "an error is the last item");
}

#[tokio::test]
async fn a_refused_stream_says_why() {
    let (_folder, toy, served, client) = toy_and_client().await;
    toy.on("StreamContainers", Do::Fail(Error::internal("x", "", "broken")));
    let error = client
        .stream_containers(StreamContainersRequest::default())
        .await
        .err()
        .unwrap();
    assert_eq!(error, Error::internal("StreamContainers", "", "broken"));
    served.stop().await;
}

#[tokio::test]
async fn the_longest_times_are_no_overflow() {
    let (_folder, toy, served, _client) = toy_and_client().await;
    let patient = CriClient::builder(served.path.to_str().unwrap())
        .timeout(Duration::MAX)
        .backoff(Duration::MAX, Duration::MAX)
        .connect_lazy()
        .unwrap();
    let items = patient
        .stream_containers(StreamContainersRequest::default())
        .await
        .unwrap();
    assert_eq!(items.count().await, 2);
    toy.on("StopContainer", Do::Answer(Vec::new()));
    patient
        .stop_container(StopContainerRequest {
            timeout: i64::MAX,
            ..Default::default()
        })
        .await
        .unwrap();
    served.stop().await;
}

#[tokio::test]
async fn a_list_that_stays_away_ends_at_its_deadline() {
    let (_folder, toy, served, _client) = toy_and_client().await;
    toy.on("StreamContainers", Do::Endless(Vec::new()));
    let hasty = CriClient::builder(served.path.to_str().unwrap())
        .timeout(Duration::from_millis(100))
        .connect_lazy()
        .unwrap();
    let error = match hasty.stream_containers(StreamContainersRequest::default()).await {
        Ok(items) => {
            let items: Vec<_> = items.collect().await;
            items.into_iter().next_back().unwrap().unwrap_err()
        }
        Err(error) => error,
    };
    assert!(
        matches!(
            error,
            Error::Timeout {
                call: "StreamContainers",
                ..
            }
        ),
        "{error}"
    );
    toy.wait_under_way(0).await;
    served.stop().await;
}
