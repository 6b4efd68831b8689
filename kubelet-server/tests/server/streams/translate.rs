//! A node's server in front of a runtime's streaming server: bytes handed on, WebSocket translated, SPDY tunnelled.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use http::{Request, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubelet_core::runtime::streaming::{
    ClientStreams, CommandKind, RemoteCommand, StreamError, StreamOptions, StreamingServer, TerminalSize,
};
use kubelet_server::streaming::spdy::{Connection, Headers};
use kubelet_server::streaming::{
    StreamServerOptions, StreamTimeouts, proxy_upgrade, serve_translated, serve_tunnel, wants_close_signal,
    wants_tunnel,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::runtime::{Missing, Pod, Process};
use super::server::Running;

const ALL: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: true,
    tty: false,
};
const TTY: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: true,
};
const IDLE: Duration = Duration::from_secs(600);

/// The node's end of a connection: answers one request from the runtime at `target`.
pub(super) async fn node(target: String, options: StreamOptions) -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    tokio::spawn(async move {
        let (sender, mut session) = tokio::sync::mpsc::unbounded_channel();
        let service = service_fn(|request: Request<Incoming>| {
            let target: Uri = target.parse().unwrap();
            let sender = sender.clone();
            async move {
                let answer = if wants_close_signal(request.headers()) {
                    serve_translated(request, target, options, StreamTimeouts::default())
                } else if wants_tunnel(request.headers()) {
                    serve_tunnel(request, &target, IDLE).await
                } else {
                    let client = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                    proxy_upgrade(request, &target, client, IDLE).await
                };
                if let Some(session) = answer.session {
                    sender.send(session).unwrap();
                }
                Ok::<_, Infallible>(answer.response)
            }
        });
        let builder = hyper::server::conn::http1::Builder::new();
        builder
            .serve_connection(TokioIo::new(server), service)
            .with_upgrades()
            .await
            .unwrap();
        if let Ok(session) = session.try_recv() {
            session.await;
        }
    });
    client
}

/// Sends a request, and gives the head of the answer.
pub(super) async fn ask(socket: &mut TcpStream, head: &str) -> String {
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap().to_lowercase()
}

pub(super) fn websocket_request(protocol: &str) -> String {
    format!(
        "GET /exec/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: Xk3FUib2z3hqBTLRYMJeuQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    )
}

fn spdy_request(protocol: &str) -> String {
    format!(
        "POST /exec/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: \
         {protocol}\r\n\r\n"
    )
}

async fn websocket(mut socket: TcpStream, protocol: &str) -> WebSocketStream<TcpStream> {
    let answer = ask(&mut socket, &websocket_request(protocol)).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(
        answer.contains(&format!(
            "sec-websocket-protocol: {}\r\n",
            protocol.to_lowercase()
        )),
        "{answer}"
    );
    WebSocketStream::from_raw_socket(socket, Role::Client, None).await
}

/// Reads until the server closes, and gives the bytes of each channel.
async fn channels(client: &mut WebSocketStream<TcpStream>) -> [String; 4] {
    let mut channels: [String; 4] = Default::default();
    while let Some(message) = client.next().await {
        match message.unwrap() {
            Message::Binary(data) => {
                channels[usize::from(data[0])].push_str(std::str::from_utf8(&data[1..]).unwrap())
            }
            Message::Close(frame) => assert_eq!(u16::from(frame.unwrap().code), 1000),
            other => panic!("{other:?}"),
        }
    }
    channels
}

#[tokio::test]
async fn a_command_over_websocket_reaches_a_runtime_over_spdy() {
    let runtime = Running::start(StreamServerOptions::default()).await;
    let command = Process::new(
        &["sh", "-c", "cat; echo err >&2; exit 3"],
        std::path::Path::new("/"),
    );
    let target = runtime
        .handle
        .offer_command(CommandKind::Exec, ALL, command)
        .unwrap();
    let mut client = websocket(node(target, ALL).await, "v5.channel.k8s.io").await;
    client
        .send(Message::binary(&b"\0some input\n"[..]))
        .await
        .unwrap();
    client.send(Message::binary(&[255, 0][..])).await.unwrap();
    let [_, stdout, stderr, status] = channels(&mut client).await;
    assert_eq!((stdout.as_str(), stderr.as_str()), ("some input\n", "err\n"));
    assert_eq!(
        status,
        r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#
    );
    runtime.stop().await;
}

/// Shows the size of its terminal once it is 7 by 5.
struct Size;

#[async_trait]
impl RemoteCommand for Size {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        let mut terminal = streams.terminal.unwrap();
        let seven = |size: &Option<TerminalSize>| size.is_some_and(|size| size.width == 7);
        let size = terminal.wait_for(seven).await.unwrap().unwrap();
        let text = format!("{} {}", size.width, size.height);
        streams.stdout.unwrap().write_all(text.as_bytes()).await.unwrap();
        Ok(0)
    }
}

#[tokio::test]
async fn sizes_of_the_terminal_are_translated() {
    let runtime = Running::start(StreamServerOptions::default()).await;
    let target = runtime
        .handle
        .offer_command(CommandKind::Attach, TTY, Box::new(Size))
        .unwrap();
    let mut client = websocket(node(target, TTY).await, "v5.channel.k8s.io").await;
    client
        .send(Message::binary(&b"\x04{\"Width\":80,\"Height\":24}"[..]))
        .await
        .unwrap();
    client
        .send(Message::binary(&b"\x04{\"Width\":7,\"Height\":5}"[..]))
        .await
        .unwrap();
    let [_, stdout, _, status] = channels(&mut client).await;
    assert_eq!(
        (stdout.as_str(), status.as_str()),
        ("7 5", r#"{"metadata":{},"status":"Success"}"#)
    );
    runtime.stop().await;
}

#[tokio::test]
async fn failures_of_a_runtime_are_translated() {
    let runtime = Running::start(StreamServerOptions::default()).await;
    let missing = Box::new(Missing("no such file".to_owned()));
    let target = runtime
        .handle
        .offer_command(CommandKind::Exec, ALL, missing)
        .unwrap();
    let used = target.clone();
    let cases = [
        (
            target,
            "Internal error occurred: error executing command in container: no such file",
        ),
        (used, "unable to upgrade connection: 404 page not found"),
        ("http://127.0.0.1:1/exec/x".to_owned(), "error dialing backend: "),
    ];
    for (target, message) in cases {
        let mut client = websocket(node(target, ALL).await, "v5.channel.k8s.io").await;
        let [_, _, _, status] = channels(&mut client).await;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["reason"], "InternalError");
        let text = status["message"].as_str().unwrap();
        assert!(
            text.starts_with("Internal error occurred: ") && text.contains(message),
            "{text}"
        );
    }
    runtime.stop().await;
}

/// One request through a forwarded port.
async fn get_index(client: &kubelet_server::streaming::spdy::Handle) -> String {
    let [error, data] = ["error", "data"].map(|kind| {
        let headers = Headers::new()
            .with("streamType", kind)
            .with("port", "8080")
            .with("requestID", "0");
        client.open(headers).unwrap()
    });
    let (mut error, mut data) = (error, data);
    error.shutdown().await.unwrap();
    data.write_all(b"GET /index.html HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    data.read_to_string(&mut answer).await.unwrap();
    data.shutdown().await.unwrap();
    let mut failure = String::new();
    error.read_to_string(&mut failure).await.unwrap();
    assert_eq!(failure, "");
    answer
}

fn web_server() -> Box<Pod> {
    let answers = vec![("/index.html".to_owned(), b"hello".to_vec())];
    Box::new(Pod {
        name: String::new(),
        answers,
        refusal: String::new(),
    })
}

#[tokio::test]
async fn spdy_goes_through_a_tunnel() {
    let runtime = Running::start(StreamServerOptions::default()).await;
    let target = runtime.handle.offer_port_forward(&[], web_server()).unwrap();
    let socket = websocket(node(target, ALL).await, "SPDY/3.1+portforward.k8s.io").await;
    // The bytes of SPDY on one side, messages on the other.
    let (ours, theirs) = tokio::io::duplex(4096);
    let (mut sink, mut stream) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(theirs);
    let up = tokio::spawn(async move {
        let mut buffer = BytesMut::new();
        while reader.read_buf(&mut buffer).await.unwrap() > 0 {
            sink.send(Message::Binary(buffer.split().freeze())).await.unwrap();
        }
        sink.close().await.unwrap();
    });
    tokio::spawn(async move {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(data) = message {
                writer.write_all(&data).await.unwrap();
            }
        }
    });
    let (connection, client) = Connection::client(ours);
    let running = tokio::spawn(connection.run());
    assert_eq!(get_index(&client).await, "hello");
    client.close();
    running.await.unwrap().unwrap();
    up.await.unwrap();
    runtime.stop().await;
}

#[tokio::test]
async fn bytes_of_any_protocol_are_handed_on() {
    let runtime = Running::start(StreamServerOptions::default()).await;
    // SPDY.
    let target = runtime.handle.offer_port_forward(&[], web_server()).unwrap();
    let mut socket = node(target, ALL).await;
    let answer = ask(&mut socket, &spdy_request("portforward.k8s.io")).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(
        answer.contains("\r\nx-stream-protocol-version: portforward.k8s.io\r\n"),
        "{answer}"
    );
    let (connection, client) = Connection::client(socket);
    let running = tokio::spawn(connection.run());
    assert_eq!(get_index(&client).await, "hello");
    client.close();
    running.await.unwrap().unwrap();
    // WebSocket of an older version.
    let command = Process::new(&["echo", "yes"], std::path::Path::new("/"));
    let target = runtime
        .handle
        .offer_command(CommandKind::Exec, ALL, command)
        .unwrap();
    let mut client = websocket(node(target, ALL).await, "v4.channel.k8s.io").await;
    let [_, stdout, _, status] = channels(&mut client).await;
    assert_eq!(
        (stdout.as_str(), status.as_str()),
        ("yes\n", r#"{"metadata":{},"status":"Success"}"#)
    );
    runtime.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_no_upgrade_reaches_the_client() {
    let runtime = Running::start(StreamServerOptions::default()).await;
    let used = format!("http://{}/exec/12345678", runtime.address);
    let plain = "GET /exec/x HTTP/1.1\r\nHost: x\r\n\r\n".to_owned();
    let cases = [
        (
            used.clone(),
            spdy_request("v4.channel.k8s.io"),
            "404",
            "404 page not found\n",
        ),
        (
            used.clone(),
            websocket_request("SPDY/3.1+portforward.k8s.io"),
            "404",
            "404 page not found\n",
        ),
        (used, plain, "500", "Upgrade request required\n"),
        (
            "https://127.0.0.1:1/".to_owned(),
            spdy_request("v4.channel.k8s.io"),
            "500",
            "is not of plain HTTP\n",
        ),
    ];
    for (target, head, status, body) in cases {
        let mut socket = node(target, ALL).await;
        let answer = ask(&mut socket, &head).await;
        assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{answer}");
        let length = answer
            .split("content-length: ")
            .nth(1)
            .unwrap()
            .split('\r')
            .next()
            .unwrap();
        let mut text = vec![0; length.parse().unwrap()];
        socket.read_exact(&mut text).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with(body), "{text}");
    }
    runtime.stop().await;
}
