//! The limits in the docs of the crate: each is tested, here or where its part is tested.

use std::net::SocketAddr;

use kubelet_apiserver::User;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::server;

/// The limits that are tested elsewhere, and the test.
const ELSEWHERE: [(&str, &str); 7] = [
    ("connections", "not tested: `listener::run` counts them"),
    ("operations of a JSON patch", "patch::json (unit tests)"),
    ("bytes that a JSON patch copies", "patch::json (unit tests)"),
    ("levels of a patch", "patch::json (unit tests)"),
    (
        "frames and messages of exec, attach and port-forward",
        "nodes::streams",
    ),
    ("logs, `nodes/proxy`, `pods/proxy`", "nodes::logs"),
    (
        "error of a node instead of a log",
        "nodes::logs::a_long_refusal_of_a_node_is_cut_off",
    ),
];

/// The limits that are tested below. A list or a watch has none to test.
const HERE: [&str; 9] = [
    "body of a request",
    "head of a request, HTTP/1.1",
    "headers of a request, HTTP/1.1",
    "URL",
    "head of a request, HTTP/2",
    "requests at once, HTTP/2",
    "data of a config map or secret",
    "annotations of an object",
    "response of a list, event of a watch",
];

#[test]
fn each_limit_of_the_docs_has_a_test() {
    let table = include_str!("../../src/limits.md");
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut named: Vec<&str> = rows.map(|row| row.split('|').nth(1).unwrap().trim()).collect();
    let mut tested: Vec<&str> = ELSEWHERE.iter().map(|(limit, _)| *limit).chain(HERE).collect();
    named.sort_unstable();
    tested.sort_unstable();
    assert_eq!(named, tested);
}

/// The status of the answer to a request, and the answer.
async fn ask(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let mut answer = Vec::new();
    // A server that refuses a request need not read all of it.
    let (_, _) = tokio::join!(
        writer.write_all(request.as_bytes()),
        reader.read_to_end(&mut answer)
    );
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).unwrap_or("none").to_owned(), answer)
}

/// A request to close after.
fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn requests_have_the_limits_of_the_reference() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    const MAX_HEADER_LIST_SIZE: u16 = 6;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let server = server();
    let kubeconfig = server.kubeconfig(address, User::admin());
    let base = kubeconfig
        .lines()
        .find_map(|line| line.split_once(&format!("http://{address}")))
        .unwrap()
        .1;
    let serving = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { server.serve(listener, shutdown).await }
    });

    let header = |bytes: usize| format!("X: {}\r\n", "x".repeat(bytes));
    let headers = |count: usize| {
        (2..count)
            .map(|number| format!("x-{number}: 1\r\n"))
            .collect::<String>()
    };
    let url = |bytes: usize| format!("GET /version?{}", "x".repeat(bytes - 9));
    let create = |kind: &str, body: &str| {
        let length = body.len();
        let headers = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
        request(&format!("POST {base}/api/v1/namespaces/default/{kind}"), &headers) + body
    };
    let config = |data: usize, annotation: usize| {
        let object = json!({
            "metadata": {"generateName": "large-", "annotations": {"a": "x".repeat(annotation)}},
            "data": {"a": "x".repeat(data)},
        });
        create("configmaps", &object.to_string())
    };
    let secret = |data: usize| {
        let object = json!({"metadata": {"generateName": "large-"}, "stringData": {"a": "x".repeat(data)}});
        create("secrets", &object.to_string())
    };
    let cases = [
        ("head of 1 MiB", request("GET /version", &header(1 << 20)), "200"),
        ("head of 3 MiB", request("GET /version", &header(3 << 20)), "431"),
        ("1,000 headers", request("GET /version", &headers(1000)), "200"),
        ("1,001 headers", request("GET /version", &headers(1001)), "431"),
        ("the longest URL", request(&url(65_534), ""), "200"),
        ("a longer URL", request(&url(65_535), ""), "414"),
        (
            "body of 3 MiB that is no object",
            create("pods", &" ".repeat(3 << 20)),
            "400",
        ),
        ("body of more", create("pods", &" ".repeat((3 << 20) + 1)), "413"),
        ("config map of 1 MiB", config(1 << 20, 0), "201"),
        ("larger config map", config((1 << 20) + 1, 0), "422"),
        ("secret of 1 MiB", secret(1 << 20), "201"),
        ("larger secret", secret((1 << 20) + 1), "422"),
        ("annotations of 256 KiB", config(0, (256 << 10) - 1), "201"),
        ("larger annotations", config(0, 256 << 10), "422"),
    ];
    for (what, request, expected) in cases {
        let (status, answer) = ask(address, &request).await;
        assert_eq!(status, expected, "{what}: {answer:.1000}");
    }

    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame has the settings");
    let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut payload).await.unwrap();
    for (id, value) in [
        (MAX_CONCURRENT_STREAMS, 100_u32),
        (MAX_HEADER_LIST_SIZE, (1 << 20) + 320),
    ] {
        let entry = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
        assert!(
            payload.chunks(6).any(|said| said == entry),
            "setting {id} is not {value}: {payload:?}"
        );
    }
    drop(stream);
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
