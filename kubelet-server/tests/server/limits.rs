//! The limits in the docs of the crate: each is tested, here or where its part is tested.

use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_server::authorization::AlwaysAllow;
use kubelet_server::streaming::websocket::frame::MAX_FRAME;
use kubelet_server::streaming::{StreamServer, StreamServerOptions};
use kubelet_server::{Authorization, LogVerbosity, NodeApi, Server, TlsSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::https::{Running, connect_with, local, pods, serving};
use crate::users;

/// The limits that are tested elsewhere, and the test.
const ELSEWHERE: [(&str, &str); 21] = [
    ("connections", "https::a_hostile_client_is_cut_off"),
    (
        "frame of a WebSocket: exec, attach, port-forward",
        "streams::large::the_longest_frame_is_taken_and_a_longer_one_is_refused",
    ),
    (
        "message of a WebSocket in fragments",
        "streams::frames::messages_come_out_as_they_were_sent",
    ),
    (
        "message of a WebSocket: tunnel (port-forward of newer clients)",
        "streams::large::a_message_of_a_tunnel_may_have_any_length",
    ),
    (
        "ping, pong and close frame of a WebSocket",
        "streams::frames::broken_frames_have_a_reason_and_a_code",
    ),
    (
        "data frame of SPDY",
        "streams::codec::a_long_data_frame_comes_in_pieces",
    ),
    ("control frame of SPDY", "streams::codec::wrong_frames_are_named"),
    (
        "headers of a SPDY frame",
        "streams::codec::a_frame_has_a_thousand_headers_at_most",
    ),
    (
        "header block of a SPDY frame, decompressed",
        "streams::codec::a_header_block_cannot_grow_without_end",
    ),
    (
        "streams of a SPDY connection at once",
        "streams::codec::a_connection_has_a_thousand_streams_at_most",
    ),
    (
        "input that a command has not read: WebSocket",
        "streaming::websocket::socket (unit test)",
    ),
    (
        "input that a command has not read: SPDY",
        "streams::server::an_unread_stream_is_bounded",
    ),
    (
        "output of a command",
        "streams::replay::recorded_clients_get_what_the_reference_sent",
    ),
    (
        "size of a terminal, as JSON",
        "streaming::command::terminal (unit tests)",
    ),
    (
        "status of a command from a runtime",
        "not tested: a runtime's fault",
    ),
    (
        "error of a runtime instead of streams",
        "not tested: a runtime's fault",
    ),
    (
        "ports of a port-forward, WebSocket",
        "streams::large::more_ports_than_channels_are_refused",
    ),
    (
        "streams that were offered and not opened",
        "streams::server::offers_are_checked_and_bounded",
    ),
    ("lines of a container's log", "logs"),
    (
        "system logs: `tailLines`, services, length of a name",
        "system_logs (unit tests)",
    ),
    ("output of `/run`", "not tested: nothing is limited here"),
];

/// The limits that are tested below.
const HERE: [&str; 6] = [
    "head of a request, HTTP/1.1",
    "headers of a request, HTTP/1.1",
    "URL",
    "head of a request, HTTP/2",
    "requests at once, HTTP/2",
    "body of `PUT /debug/flags/v`",
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
    assert_eq!(MAX_FRAME, 32 << 20);
}

/// Takes any value.
struct Any;

impl LogVerbosity for Any {
    fn set(&self, value: &str) -> Result<String, String> {
        Ok(format!("{} bytes", value.len()))
    }
}

fn api() -> NodeApi {
    let authorization = Authorization::new("n", Arc::new(AlwaysAllow));
    NodeApi::builder(pods(), users::authentication(), authorization)
        .verbosity(Arc::new(Any))
        .build()
}

/// The status of the answer to a request.
async fn status(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let mut answer = Vec::new();
    // A server that refuses a request need not read all of it.
    let (_, _) = tokio::join!(
        writer.write_all(request.as_bytes()),
        reader.read_to_end(&mut answer)
    );
    String::from_utf8_lossy(&answer)
        .split(' ')
        .nth(1)
        .unwrap_or("none")
        .to_owned()
}

/// A request to close after, with a line that has this many bytes in all, and more lines.
fn request(line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n{headers}\r\n")
}

/// The node's server, and the server of a runtime, to which the headers of a client are handed on.
#[tokio::test]
async fn the_limits_of_http1() {
    let node = Running::start(Server::bind_insecure(local(), api()).unwrap());
    let streams = StreamServer::bind(StreamServerOptions::default()).await.unwrap();
    let (runtime, shutdown) = (streams.address(), CancellationToken::new());
    let serving = tokio::spawn(streams.run(shutdown.clone()));

    let header = |bytes: usize| format!("X: {}\r\n", "x".repeat(bytes));
    let headers = |count: usize| {
        (2..count)
            .map(|number| format!("x-{number}: 1\r\n"))
            .collect::<String>()
    };
    let url = |bytes: usize| format!("GET /healthz?{}", "x".repeat(bytes - 9));
    let health = "GET /healthz";
    let cases = [
        ("head of 1 MiB", request(health, &header(1 << 20)), "taken"),
        ("head of 3 MiB", request(health, &header(3 << 20)), "431"),
        ("1,000 headers", request(health, &headers(1000)), "taken"),
        ("1,001 headers", request(health, &headers(1001)), "431"),
        ("the longest URL", request(&url(65_534), ""), "taken"),
        ("a longer URL", request(&url(65_535), ""), "414"),
    ];
    for (what, request, expected) in cases {
        for (address, taken) in [(node.address, "401"), (runtime, "404")] {
            let expected = if expected == "taken" { taken } else { expected };
            assert_eq!(status(address, &request).await, expected, "{what}");
        }
    }
    node.stop().await;
    shutdown.cancel();
    serving.await.unwrap();
}

/// What a server says about itself at the begin of a connection, by the number of the setting.
async fn settings(
    stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin),
) -> Vec<(u16, u32)> {
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    stream.flush().await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame has the settings");
    let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut payload).await.unwrap();
    let of = |entry: &[u8]| {
        let (id, value) = entry.split_at(2);
        (
            u16::from_be_bytes(id.try_into().unwrap()),
            u32::from_be_bytes(value.try_into().unwrap()),
        )
    };
    payload.chunks(6).map(of).collect()
}

#[tokio::test]
async fn the_limits_of_http2() {
    const MAX_CONCURRENT_STREAMS: u16 = 3;
    const MAX_HEADER_LIST_SIZE: u16 = 6;
    let tls = TlsSettings::new(Arc::new(serving().0));
    let server = Running::start(Server::bind(local(), api(), &tls).unwrap());
    let protocols = [b"h2".to_vec()];
    let connect = || connect_with(server.address, None, rustls::ALL_VERSIONS, &protocols);
    let said = settings(&mut connect().await.unwrap()).await;
    assert!(said.contains(&(MAX_CONCURRENT_STREAMS, 250)), "{said:?}");
    assert!(
        said.contains(&(MAX_HEADER_LIST_SIZE, (1 << 20) + 320)),
        "{said:?}"
    );

    for (bytes, status) in [((1 << 20) - 1000, 401), (1 << 20, 431)] {
        let io = hyper_util::rt::TokioIo::new(connect().await.unwrap());
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = http::Request::get(format!("https://{}/healthz", server.address));
        let request = request
            .header("x", "x".repeat(bytes))
            .header("y", "y".repeat(400));
        let request = request
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        assert_eq!(
            send.send_request(request).await.unwrap().status(),
            status,
            "{bytes} bytes"
        );
        connection.abort();
    }
    server.stop().await;
}

#[tokio::test]
async fn the_limit_of_a_verbosity() {
    let server = Running::start(Server::bind_insecure(local(), api()).unwrap());
    for (bytes, expected) in [(256, "200"), (257, "400")] {
        let headers = format!("Authorization: Bearer admin\r\nContent-Length: {bytes}\r\n");
        let request = request("PUT /debug/flags/v", &headers) + &"x".repeat(bytes);
        assert_eq!(status(server.address, &request).await, expected, "{bytes} bytes");
    }
    server.stop().await;
}
