//! Probes over the network, against servers on loopback: results and messages.

mod server;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::ProbeOutcome::{self, Failure, Success, Warning};
use kubelet_core::{ContainerId, ProbeKind, ProbeTarget, Prober};
use kubelet_kuberuntime::NetworkProber;
use serde_json::{Value, json};

use self::server::{Server, closed_port};

/// Probes a container at 127.0.0.1 whose port `web` is `port`.
async fn probe(port: u16, mut probe: Value) -> ProbeOutcome {
    if probe["timeoutSeconds"].is_null() {
        probe["timeoutSeconds"] = json!(10);
    }
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", "readinessProbe": probe,
            "ports": [{"name": "web", "containerPort": port}]}]},
    }))
    .unwrap();
    let status = Arc::new(serde_json::from_value(json!({"podIP": "127.0.0.1"})).unwrap());
    let id = ContainerId::new("fake", "1");
    let target = ProbeTarget::new(ProbeKind::Readiness, Arc::new(pod), status, "c", id).unwrap();
    let prober = NetworkProber::new();
    tokio::time::timeout(Duration::from_secs(60), prober.probe(&target))
        .await
        .unwrap()
}

async fn get(port: u16, path: &str) -> ProbeOutcome {
    probe(port, json!({"httpGet": {"port": "web", "path": path}})).await
}

fn failure(text: impl Into<String>) -> ProbeOutcome {
    ProbeOutcome::failure(text)
}

fn warning(body: &str) -> ProbeOutcome {
    Warning {
        output: format!("Probe terminated redirects, Response body: {body}"),
    }
}

fn reply(status: u16, headers: &str, body: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 {status} X\r\n{headers}Connection: close\r\n\r\n{body}"
    ))
}

fn path(request: &str) -> &str {
    request.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn the_status_decides() {
    let server = Server::http(|request| reply(path(request)[1..].parse().unwrap(), "", "a body")).await;
    let table = [
        (200, Success),
        (204, Success),
        (299, Success),
        (300, warning("a body")),
        (304, warning("")),
        (308, warning("a body")),
        (399, warning("a body")),
        (400, failure("HTTP probe failed with statuscode: 400")),
        (404, failure("HTTP probe failed with statuscode: 404")),
        (500, failure("HTTP probe failed with statuscode: 500")),
    ];
    for (status, expected) in table {
        assert_eq!(
            get(server.port, &format!("/{status}")).await,
            expected,
            "{status}"
        );
    }
}

#[tokio::test]
async fn redirects_to_the_same_host_are_followed() {
    let server = Server::http(|request| match path(request) {
        "/good" => reply(200, "", ""),
        "/bad" => reply(500, "", ""),
        "/elsewhere" => reply(302, "Location: http://elsewhere.invalid/good\r\n", "over there"),
        "/round" => reply(302, "Location: /round\r\n", ""),
        "/nowhere" => reply(308, "", "no location"),
        "/host" => reply(302, "Location: http://127.0.0.1:1/x\r\n", ""),
        other => {
            let (status, to) = other[1..].split_once('/').unwrap();
            reply(status.parse().unwrap(), &format!("Location: /{to}\r\n"), "")
        }
    })
    .await;
    let port = server.port;
    for status in [301, 302, 303, 307, 308] {
        assert_eq!(get(port, &format!("/{status}/good")).await, Success, "{status}");
        let bad = get(port, &format!("/{status}/bad")).await;
        assert_eq!(bad, failure("HTTP probe failed with statuscode: 500"), "{status}");
    }
    assert_eq!(get(port, "/nowhere").await, warning("no location"));
    assert_eq!(get(port, "/302/elsewhere").await, warning("over there"));
    let round = format!("Get \"http://127.0.0.1:{port}/round\": stopped after 10 redirects");
    assert_eq!(get(port, "/round").await, failure(round));
    // The port may differ.
    let refused = "Get \"http://127.0.0.1:1/x\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(get(port, "/host").await, failure(refused));
}

#[tokio::test]
async fn ten_redirects_are_too_many_and_nine_are_not() {
    let server = Server::http(|request| match path(request)[1..].parse::<u32>().unwrap() {
        0 => reply(200, "", ""),
        more => reply(302, &format!("Location: /{}\r\n", more - 1), ""),
    })
    .await;
    assert_eq!(get(server.port, "/9").await, Success);
    assert!(
        matches!(get(server.port, "/10").await, Failure { output } if output.ends_with("stopped after 10 redirects"))
    );
}

/// The outcome is a warning with the request that the server received.
async fn echo(action: Value, port: u16) -> String {
    match probe(port, json!({"httpGet": action})).await {
        Warning { output } => output,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_request_is_the_kubelets() {
    let server = Server::http(|request| reply(300, "", request)).await;
    let port = server.port;
    let plain = echo(json!({"port": port}), port).await;
    let mut lines: Vec<&str> = plain.split("body: ").nth(1).unwrap().split("\r\n").collect();
    lines.retain(|line| !line.is_empty());
    lines[1..].sort_unstable();
    let host = format!("Host: 127.0.0.1:{port}");
    let expected = [
        "GET / HTTP/1.1",
        "Accept: */*",
        "Connection: close",
        &host,
        "User-Agent: kube-probe/1.36",
    ];
    assert_eq!(lines, expected);

    // configured headers → headers that must and must not be sent
    let table = [
        (
            json!([{"name": "Accept-Encoding", "value": "gzip"}]),
            "Accept-Encoding: gzip\r\n",
            "*/*,",
        ),
        (
            json!([{"name": "X-Muffins-Or-Cupcakes", "value": "muffins"}]),
            "X-Muffins-Or-Cupcakes: muffins\r\n",
            "foo",
        ),
        (
            json!([{"name": "User-Agent", "value": "foo/1.0"}]),
            "User-Agent: foo/1.0\r\n",
            "kube-probe",
        ),
        (
            json!([{"name": "User-Agent", "value": ""}]),
            "Accept: */*\r\n",
            "User-Agent",
        ),
        (
            json!([{"name": "accept", "value": "text/html"}]),
            "Accept: text/html\r\n",
            "*/*",
        ),
        (
            json!([{"name": "Accept", "value": ""}]),
            "Connection: close\r\n",
            "Accept:",
        ),
        (
            json!([{"name": "Host", "value": "muffins.cupcakes.org"}]),
            "Host: muffins.cupcakes.org\r\n",
            "127.0.0.1",
        ),
        (
            json!([{"name": "Content-Length", "value": "100"}]),
            "Accept: */*\r\n",
            "Content-Length",
        ),
    ];
    for (headers, must, must_not) in table {
        let sent = echo(
            json!({"port": "web", "path": "/a?b=c", "httpHeaders": headers}),
            port,
        )
        .await;
        assert!(
            sent.contains("GET /a?b=c HTTP/1.1\r\n") && sent.contains(must),
            "{headers}: {sent}"
        );
        assert!(!sent.contains(must_not), "{headers}: {sent}");
    }
}

#[tokio::test]
async fn the_host_header_outlasts_a_relative_redirect_only() {
    let server = Server::http(move |request| {
        let port = request
            .split("X-Port: ")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap();
        match path(request) {
            "/relative" => reply(302, "Location: /end\r\n", ""),
            "/absolute" => reply(302, &format!("Location: http://127.0.0.1:{port}/end\r\n"), ""),
            _ => reply(300, "", request),
        }
    })
    .await;
    let port = server.port;
    for (path, host) in [
        ("/relative", "muffins.org".to_owned()),
        ("/absolute", format!("127.0.0.1:{port}")),
    ] {
        let headers =
            json!([{"name": "Host", "value": "muffins.org"}, {"name": "X-Port", "value": port.to_string()}]);
        let sent = echo(json!({"port": port, "path": path, "httpHeaders": headers}), port).await;
        assert!(sent.contains(&format!("Host: {host}\r\n")), "{path}: {sent}");
        assert!(
            sent.contains(&format!("Referer: http://127.0.0.1:{port}{path}\r\n")),
            "{path}: {sent}"
        );
    }
}

#[tokio::test]
async fn ten_kibibytes_of_an_answer_are_read() {
    let server =
        Server::http(|request| reply(300, "", &"x".repeat(path(request)[1..].parse().unwrap()))).await;
    for (size, read) in [
        (100, 100),
        (10 << 10, 10 << 10),
        ((10 << 10) + 1, 10 << 10),
        (500_000, 10 << 10),
    ] {
        let outcome = get(server.port, &format!("/{size}")).await;
        assert_eq!(outcome, warning(&"x".repeat(read)), "{size}");
    }
}

#[tokio::test]
async fn what_goes_wrong_is_told_in_gos_words() {
    let server = Server::http(|request| match path(request) {
        "/hangs" => None,
        "/nothing" => Some(String::new()),
        "/half" => Some("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_owned()),
        _ => reply(200, "", ""),
    })
    .await;
    let port = server.port;
    let url = format!("http://127.0.0.1:{port}");
    assert_eq!(
        get(port, "/nothing").await,
        failure(format!("Get \"{url}/nothing\": EOF"))
    );
    let half = ProbeOutcome::Errored {
        result: kubelet_core::ProbeResult::Failure,
        error: "unexpected EOF".to_owned(),
    };
    assert_eq!(get(port, "/half").await, half);
    let hangs = probe(
        port,
        json!({"httpGet": {"port": port, "path": "/hangs"}, "timeoutSeconds": 1}),
    )
    .await;
    let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
    assert_eq!(hangs, failure(format!("Get \"{url}/hangs\": {late}")));

    let (_bound, closed) = closed_port();
    let refused = format!("dial tcp 127.0.0.1:{closed}: connect: connection refused");
    assert_eq!(
        get(closed, "/").await,
        failure(format!("Get \"http://127.0.0.1:{closed}/\": {refused}"))
    );
    let scheme = probe(port, json!({"httpGet": {"port": port, "scheme": "BAZ"}})).await;
    assert_eq!(
        scheme,
        failure(format!(
            "Get \"baz://127.0.0.1:{port}\": unsupported protocol scheme \"baz\""
        ))
    );
    let header = json!({"httpGet": {"port": port, "httpHeaders": [{"name": "a b", "value": ""}]}});
    let expected = format!("Get \"{url}\": net/http: invalid header field name \"a b\"");
    assert_eq!(probe(port, header).await, failure(expected));
    let name = probe(port, json!({"httpGet": {"port": "qux"}})).await;
    assert_eq!(
        name,
        ProbeOutcome::unknown("strconv.Atoi: parsing \"qux\": invalid syntax")
    );
    let secure = probe(port, json!({"httpGet": {"port": port, "scheme": "HTTPS"}})).await;
    let plain = "http: server gave HTTP response to HTTPS client";
    assert_eq!(
        secure,
        failure(format!("Get \"https://127.0.0.1:{port}\": {plain}"))
    );
}

#[tokio::test]
async fn certificates_are_not_looked_at() {
    let server = Server::https(|_| reply(200, "", "")).await;
    let port = server.port;
    assert_eq!(
        probe(port, json!({"httpGet": {"port": port, "scheme": "HTTPS"}})).await,
        Success
    );
}

#[tokio::test]
async fn a_connection_is_all_that_tcp_asks_for() {
    let server = Server::http(|_| None).await;
    let (_bound, closed) = closed_port();
    let refused = failure(format!(
        "dial tcp 127.0.0.1:{closed}: connect: connection refused"
    ));
    let table = [
        (json!({"port": server.port}), Success),
        (json!({"port": "web"}), Success),
        (json!({"port": server.port, "host": "localhost"}), Success),
        (json!({"port": closed}), refused),
        (
            json!({"port": 0}),
            ProbeOutcome::unknown("invalid port number: 0"),
        ),
    ];
    for (action, expected) in table {
        let outcome = probe(server.port, json!({"tcpSocket": action})).await;
        assert_eq!(outcome, expected, "{action}");
    }
    let nowhere = json!({"tcpSocket": {"port": 1, "host": "nowhere.invalid"}});
    assert_eq!(
        probe(1, nowhere).await,
        failure("dial tcp: lookup nowhere.invalid: no such host")
    );
}

#[tokio::test]
async fn grpc_health_is_asked() {
    let server = Server::grpc(|path, message| {
        assert_eq!(path, "/grpc.health.v1.Health/Check");
        match message {
            b"" => Some(Ok(vec![8, 1])),
            b"\x0a\x04down" => Some(Ok(vec![8, 2])),
            b"\x0a\x03new" => Some(Ok(vec![])),
            b"\x0a\x04gone" => Some(Err((5, "unknown service"))),
            b"\x0a\x03old" => Some(Err((12, "unknown method"))),
            _ => None,
        }
    })
    .await;
    let table = [
        (json!(null), Success),
        (json!(""), Success),
        (
            json!("down"),
            failure("service unhealthy (responded with \"NOT_SERVING\")"),
        ),
        (
            json!("new"),
            failure("service unhealthy (responded with \"UNKNOWN\")"),
        ),
        (
            json!("gone"),
            failure("error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
        ),
        (
            json!("old"),
            failure(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown method",
            ),
        ),
        (
            json!("slow"),
            failure("timeout: health rpc did not complete within 1s"),
        ),
    ];
    for (service, expected) in table {
        let seconds = if service == "slow" { 1 } else { 10 };
        let action = json!({"grpc": {"port": server.port, "service": service}, "timeoutSeconds": seconds});
        assert_eq!(probe(server.port, action).await, expected, "{service}");
    }
    let (_bound, closed) = closed_port();
    let expected = format!(
        "timeout: failed to connect service \"127.0.0.1:{closed}\" within 1s: context deadline exceeded"
    );
    let outcome = probe(closed, json!({"grpc": {"port": closed}, "timeoutSeconds": 1})).await;
    assert_eq!(outcome, failure(expected));
}
