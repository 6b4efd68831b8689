//! `nodes/proxy`.

use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kubelet_apiserver::User;

use super::fake::{FakeNode, Peer, whole};
use super::{Cluster, closed_port, status, text};

#[tokio::test]
async fn passes_requests_on_as_they_are() {
    let cluster = Cluster::start().await;
    let node = FakeNode::start(&cluster.server, |request| async move {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let Peer(subject) = head.extensions.get().unwrap();
        assert!(subject.starts_with("CN=kube-apiserver-kubelet-client"));
        assert!(!head.headers.contains_key("authorization"));
        let kind = head
            .headers
            .get("accept")
            .map_or("", |kind| kind.to_str().unwrap());
        let body = String::from_utf8_lossy(&body);
        let code = if head.uri.path() == "/gone" { 404 } else { 200 };
        let mut response = whole(code, &format!("{} {} [{kind}] {body}", head.method, head.uri));
        let headers = response.headers_mut();
        headers.insert("access-control-allow-origin", "*".parse().unwrap());
        headers.insert("content-type", "text/x-fake".parse().unwrap());
        response
    });
    let node = node.await;
    cluster.register_fake(&node);
    let port = node.address.port();
    for name in [
        "one",
        &format!("one:{port}"),
        "https:one:",
        &format!("https:one:{port}"),
    ] {
        for (method, path, body, code) in [
            ("GET", "/healthz?verbose=true", "", 200),
            ("GET", "/", "", 200),
            ("GET", "/logs/a%2Fb//", "", 200),
            ("GET", "/pods?watch=true", "", 200),
            ("PUT", "/debug/flags/v", "4", 200),
            ("POST", "/run/default/web/main?cmd=ls", "input", 200),
            ("DELETE", "/gone", "", 404),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(format!("/api/v1/nodes/{name}/proxy{path}"))
                .header("Accept", "application/openmetrics-text");
            let response = cluster.send(User::admin(), request, body).await;
            assert_eq!(response.status().as_u16(), code);
            assert_eq!(response.headers()["content-type"], "text/x-fake");
            assert!(!response.headers().contains_key("access-control-allow-origin"));
            let expected = format!("{method} {path} [application/openmetrics-text] {body}");
            assert_eq!(text(response).await, expected);
        }
    }
    let response = cluster.get("/api/v1/nodes/one/proxy?a=b").await;
    assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
    assert_eq!(response.headers()["location"], "/api/v1/nodes/one/proxy/?a=b");
    cluster.end().await;
}

#[tokio::test]
async fn refuses_in_the_api_servers_words() {
    let cluster = Cluster::start().await;
    let (_bound, port) = closed_port();
    cluster.register(port);
    let bad = |text: &str| (400, "BadRequest".to_owned(), text.to_owned());
    let refused =
        format!("error trying to reach service: dial tcp 127.0.0.1:{port}: connect: connection refused");
    for (name, expected) in [
        (
            "gone",
            (404, "NotFound".into(), "nodes \"gone\" not found".into()),
        ),
        ("a:b:c:d", bad("invalid node request \"a:b:c:d\"")),
        ("ftp:one:21", bad("invalid node request \"ftp:one:21\"")),
        ("one", (503, "ServiceUnavailable".into(), refused)),
    ] {
        let response = cluster.get(&format!("/api/v1/nodes/{name}/proxy/healthz")).await;
        assert_eq!(status(response).await, expected);
    }
    let node = User::node("one");
    let response = cluster
        .send(node, Request::get("/api/v1/nodes/one/proxy/pods"), "")
        .await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    cluster.end().await;
}
