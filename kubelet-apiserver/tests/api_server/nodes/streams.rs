//! `pods/exec`, `pods/attach` and `pods/portforward`.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use kubelet_apiserver::User;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::fake::{Body, FakeNode, whole};
use super::{Cluster, closed_port, status, text};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn upgrade(method: &str, path: &str, protocol: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(format!("{PODS}/{path}"))
        .header("Connection", "Upgrade")
        .header("Upgrade", protocol)
        .header("X-Stream-Protocol-Version", "v5.channel.k8s.io")
}

#[tokio::test]
async fn bytes_pass_both_ways_also_after_one_side_has_ended() {
    let cluster = Cluster::start().await;
    let (seen, mut requests) = mpsc::unbounded_channel();
    let node = FakeNode::start(&cluster.server, move |request| {
        let headers = request.headers();
        assert!(!headers.contains_key("authorization"));
        assert_eq!(headers["x-stream-protocol-version"], "v5.channel.k8s.io");
        let protocol = headers["upgrade"].to_str().unwrap().to_owned();
        seen.send(format!("{} {} {protocol}", request.method(), request.uri()))
            .unwrap();
        tokio::spawn(async move {
            let upgraded = hyper::upgrade::on(request).await.unwrap();
            let mut stream = TokioIo::new(upgraded);
            stream.write_all(b"welcome ").await.unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            said.reverse();
            stream.write_all(&said).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let body: Body = Empty::<Bytes>::new().boxed_unsync();
        let answer = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("Connection", "Upgrade")
            .header("Upgrade", protocol)
            .header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
            .body(body)
            .unwrap();
        async move { answer }
    });
    let node = node.await;
    cluster.register_fake(&node);
    for (path, expected) in [
        (
            "web/exec?command=sh&command=-c&command=echo+%26&stdin=true&stdout=1&tty=false",
            "/exec/default/web/main?command=sh&command=-c&command=echo+%26&input=1&output=1",
        ),
        (
            "pair/attach?container=b&stdout=true&stderr=true&tty=true",
            "/attach/default/pair/b?error=1&output=1&tty=1",
        ),
        ("pair/portforward", "/portForward/default/pair"),
        (
            "web/portforward?ports=80&ports=81",
            "/portForward/default/web?port=80%2C81",
        ),
    ] {
        for (method, protocol) in [("GET", "websocket"), ("POST", "SPDY/3.1")] {
            let response = cluster
                .send(User::admin(), upgrade(method, path, protocol), "")
                .await;
            assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS, "{path}");
            assert_eq!(response.headers()["upgrade"], protocol);
            assert_eq!(
                response.headers()["x-stream-protocol-version"],
                "v4.channel.k8s.io"
            );
            assert_eq!(
                requests.recv().await.unwrap(),
                format!("{method} {expected} {protocol}")
            );
            let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
            let mut welcome = [0; 8];
            stream.read_exact(&mut welcome).await.unwrap();
            let said: Vec<u8> = (0..200_000u32).map(|number| (number % 251) as u8).collect();
            stream.write_all(&said).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await.unwrap();
            heard.reverse();
            assert!(heard == said, "{path}: {} bytes", heard.len());
        }
    }
    cluster.end().await;
}

#[tokio::test]
async fn refuses_in_the_api_servers_words() {
    let cluster = Cluster::start().await;
    let bad = |text: &str| (400, "BadRequest".to_owned(), text.to_owned());
    for (path, expected) in [
        (
            "gone/exec",
            (404, "NotFound".into(), "pods \"gone\" not found".into()),
        ),
        (
            "web/attach",
            (404, "NotFound".into(), "nodes \"one\" not found".into()),
        ),
        ("waiting/exec", bad("pod waiting does not have a host assigned")),
        (
            "waiting/portforward",
            bad("pod waiting does not have a host assigned"),
        ),
        (
            "web/exec?container=x",
            bad("container x is not valid for pod web"),
        ),
        (
            "pair/attach",
            bad("a container name must be specified for pod pair, choose one of: [a b]"),
        ),
        (
            "web/portforward?ports=x",
            bad("strconv.ParseInt: parsing \"x\": invalid syntax"),
        ),
    ] {
        let request = upgrade("POST", path, "SPDY/3.1");
        let response = cluster.send(User::admin(), request, "").await;
        assert_eq!(status(response).await, expected, "{path}");
    }
    let (_bound, port) = closed_port();
    cluster.register(port);
    let plain = Request::post(format!("{PODS}/web/exec"));
    let response = cluster.send(User::admin(), plain, "").await;
    assert_eq!(status(response).await, bad("Upgrade request required"));
    let response = cluster
        .send(User::admin(), upgrade("GET", "web/exec", "websocket"), "")
        .await;
    let message = format!("error dialing backend: dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(status(response).await, (500, String::new(), message));
    cluster.end().await;
}

#[tokio::test]
async fn a_stream_needs_the_permission_to_create() {
    let cluster = Cluster::start().await;
    let reader = User {
        name: "reader".into(),
        groups: vec![],
    };
    cluster.server.grant("reader", &["get"], &["pods/exec"]);
    for method in ["GET", "POST"] {
        let request = upgrade(method, "web/exec", "websocket");
        let (code, _, message) = status(cluster.send(reader.clone(), request, "").await).await;
        assert_eq!(code, 403);
        assert!(
            message.contains("cannot create resource \"pods/exec\""),
            "{message}"
        );
    }
    cluster.end().await;
}

#[tokio::test]
async fn the_refusal_of_a_node_reaches_the_client_as_it_is() {
    let cluster = Cluster::start().await;
    let node = FakeNode::start(&cluster.server, |request| async move {
        let code = if request.uri().path().ends_with("/a") {
            400
        } else {
            200
        };
        whole(code, "you must specify at least 1 of stdin, stdout, stderr")
    });
    let node = node.await;
    cluster.register_fake(&node);
    let request = upgrade("POST", "pair/exec?container=a", "SPDY/3.1");
    let response = cluster.send(User::admin(), request, "").await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let got = text(response).await;
    assert_eq!(got, "you must specify at least 1 of stdin, stdout, stderr");
    let request = upgrade("POST", "pair/exec?container=b", "SPDY/3.1");
    let response = cluster.send(User::admin(), request, "").await;
    let message = "invalid upgrade response: status code 200".to_owned();
    assert_eq!(status(response).await, (500, String::new(), message));
    cluster.end().await;
}

#[tokio::test]
async fn kubectl_can_show_the_refusal_of_a_runtime() {
    let cluster = Cluster::start().await;
    let refusal =
        "rpc error: code = Unimplemented desc = the runtime \"mine\" does not support streaming exec";
    let node = FakeNode::start(&cluster.server, move |_| async move { whole(500, refusal) }).await;
    cluster.register_fake(&node);
    let request = upgrade("POST", "pair/exec?container=a", "SPDY/3.1");
    let response = cluster.send(User::admin(), request, "").await;
    let shown = (500, "InternalError".to_owned(), refusal.to_owned());
    assert_eq!(status(response).await, shown);
    cluster.end().await;
}
