//! `pods/log`.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::LogParams;
use kubelet_apiserver::User;
use tokio::sync::mpsc;

use super::fake::{FakeNode, Peer, whole};
use super::{Cluster, closed_port, status, text};

const LOG: &str = "/api/v1/namespaces/default/pods/web/log";

#[tokio::test]
async fn the_node_gets_the_options_and_its_bytes_are_returned() {
    let cluster = Cluster::start().await;
    let node = FakeNode::start(&cluster.server, |request| async move {
        let Peer(subject) = request.extensions().get().unwrap();
        whole(
            200,
            &format!("{} {} by {subject}\n", request.method(), request.uri()),
        )
    });
    let node = node.await;
    cluster.register_fake(&node);
    let by = "by CN=kube-apiserver-kubelet-client, O=system:masters";
    for (query, expected) in [
        ("", ""),
        ("?container=main&follow=false&previous=0", ""),
        (
            "?follow&previous=true&timestamps=1",
            "?follow=true&previous=true&timestamps=true",
        ),
        (
            "?tailLines=0&limitBytes=7&sinceSeconds=60&pretty=true",
            "?limitBytes=7&sinceSeconds=60&tailLines=0",
        ),
        (
            "?sinceTime=2026-01-01T02:00:00.5%2B02:00",
            "?sinceTime=2026-01-01T00%3A00%3A00Z",
        ),
    ] {
        let response = cluster.get(&format!("{LOG}{query}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/plain");
        let got = text(response).await;
        assert_eq!(
            got,
            format!("GET /containerLogs/default/web/main{expected} {by}\n")
        );
    }
    let got = text(
        cluster
            .get(&LOG.replace("web", "pair").replace("log", "log?container=b"))
            .await,
    )
    .await;
    assert!(got.starts_with("GET /containerLogs/default/pair/b "), "{got}");

    // The same in this process.
    let pods: Api<Pod> = Api::namespaced(cluster.server.client(), "default");
    let params = LogParams {
        tail_lines: Some(3),
        ..LogParams::default()
    };
    let got = pods.logs("web", &params).await.unwrap();
    assert!(got.contains("?tailLines=3 "), "{got}");
    cluster.end().await;
}

#[tokio::test]
async fn a_followed_log_arrives_chunk_by_chunk_until_the_client_leaves() {
    let cluster = Cluster::start().await;
    let (streams, mut started) = mpsc::unbounded_channel();
    let node = FakeNode::start(&cluster.server, move |_| {
        let (lines, log) = mpsc::channel::<&str>(1);
        streams.send(lines).unwrap();
        let frames = futures::stream::unfold(log, |mut log| async {
            let line = log.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(Bytes::from(line))), log))
        });
        async move { Response::new(StreamBody::new(frames).boxed_unsync()) }
    });
    let node = node.await;
    cluster.register_fake(&node);
    let mut response = cluster.get(&format!("{LOG}?follow=true")).await;
    let lines = started.recv().await.unwrap();
    for line in ["one\n", "two\n", "three\n"] {
        lines.send(line).await.unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), line);
    }
    drop(response);
    lines.closed().await;

    let response = cluster.get(&format!("{LOG}?follow=true")).await;
    let lines = started.recv().await.unwrap();
    lines.send("last\n").await.unwrap();
    drop(lines);
    assert_eq!(text(response).await, "last\n");
    cluster.end().await;
}

#[tokio::test]
async fn refuses_in_the_api_servers_words() {
    let cluster = Cluster::start().await;
    let invalid = |what: &str| format!("PodLogOptions \"web\" is invalid: {what}");
    let bad = |text: &str| (400, "BadRequest".to_owned(), text.to_owned());
    let cases = [
        (
            "gone/log",
            (404, "NotFound".into(), "pods \"gone\" not found".into()),
        ),
        (
            "web/log",
            (404, "NotFound".into(), "nodes \"one\" not found".into()),
        ),
        ("web/log?container=x", bad("container x is not valid for pod web")),
        (
            "pair/log",
            bad("a container name must be specified for pod pair, choose one of: [a b]"),
        ),
        (
            "web/log?tailLines=x",
            bad("strconv.ParseInt: parsing \"x\": invalid syntax"),
        ),
        (
            "web/log?sinceTime=x",
            bad("parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\""),
        ),
        (
            "web/log?tailLines=-1",
            (
                422,
                "Invalid".into(),
                invalid("tailLines: Invalid value: -1: must be greater than or equal to 0"),
            ),
        ),
        (
            "web/log?limitBytes=0&sinceSeconds=0",
            (
                422,
                "Invalid".into(),
                invalid(
                    "[limitBytes: Invalid value: 0: must be greater than 0, sinceSeconds: Invalid value: 0: must be \
                     greater than 0]",
                ),
            ),
        ),
    ];
    for (path, expected) in cases {
        let response = cluster
            .get(&format!("/api/v1/namespaces/default/pods/{path}"))
            .await;
        assert_eq!(status(response).await, expected, "{path}");
    }
    let response = cluster.get("/api/v1/namespaces/default/pods/waiting/log").await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    let response = cluster.send(User::node("one"), Request::get(LOG), "").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let response = cluster.send(User::admin(), Request::post(LOG), "").await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);

    let (_bound, port) = closed_port();
    cluster.register(port);
    let url = format!("https://127.0.0.1:{port}/containerLogs/default/web/main?tailLines=1");
    let message = format!("Get \"{url}\": dial tcp 127.0.0.1:{port}: connect: connection refused");
    let got = status(cluster.get(&format!("{LOG}?tailLines=1")).await).await;
    assert_eq!(got, (500, String::new(), message));
    cluster.end().await;
}

#[tokio::test]
async fn the_refusals_of_a_node_become_a_status() {
    let cluster = Cluster::start().await;
    let node = FakeNode::start(&cluster.server, |request| async move {
        let code = request.uri().query().unwrap().strip_prefix("tailLines=").unwrap();
        whole(code.parse().unwrap(), "no such luck")
    });
    let node = node.await;
    cluster.register_fake(&node);
    for (code, reason, message) in [
        (400, "BadRequest", "no such luck"),
        (
            404,
            "NotFound",
            "the server could not find the requested resource ( pods/log web)",
        ),
        (403, "Forbidden", "no such luck ( pods/log web)"),
        (
            422,
            "Invalid",
            "the server rejected our request due to an error in our request ( pods/log web)",
        ),
        (500, "InternalError", "Internal error occurred: no such luck"),
        (
            502,
            "InternalError",
            "an error on the server (\"no such luck\") has prevented the request from succeeding ( pods/log web)",
        ),
    ] {
        let got = status(cluster.get(&format!("{LOG}?tailLines={code}")).await).await;
        assert_eq!(got, (code, reason.to_owned(), message.to_owned()));
    }
    cluster.end().await;
}

#[tokio::test]
async fn a_long_refusal_of_a_node_is_cut_off() {
    let cluster = Cluster::start().await;
    let node = FakeNode::start(&cluster.server, |_| async { whole(400, &"x".repeat(50_001)) });
    let node = node.await;
    cluster.register_fake(&node);
    let (code, _, message) = status(cluster.get(LOG).await).await;
    assert_eq!(code, 400);
    assert!(message == "x".repeat(50_000), "{} bytes", message.len());
    cluster.end().await;
}
