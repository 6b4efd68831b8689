//! What the recordings do not have: wrong tokens and handshakes, slow and hostile clients.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use kubelet_core::runtime::streaming::{
    ClientStreams, CommandKind, RemoteCommand, StreamError, StreamErrorKind, StreamOptions, StreamingServer,
};
use kubelet_server::streaming::spdy::{Connection, Decoder, Encoder, Frame, Headers};
use kubelet_server::streaming::{StreamServer, StreamServerHandle, StreamServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::runtime::{Pod, Process};

const OUTPUT: StreamOptions = StreamOptions {
    stdin: false,
    stdout: true,
    stderr: false,
    tty: false,
};
const IN_AND_OUT: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: false,
};
const SPDY: &str =
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";

/// A running server.
pub(super) struct Running {
    pub(super) handle: StreamServerHandle,
    pub(super) address: SocketAddr,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(super) async fn start(options: StreamServerOptions) -> Self {
        let server = StreamServer::bind(options).await.unwrap();
        let (handle, address) = (server.handle(), server.address());
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(server.run(shutdown.clone()));
        Self {
            handle,
            address,
            shutdown,
            task,
        }
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    pub(super) fn echo(&self) -> String {
        let command = Process::new(&["echo", "yes"], std::path::Path::new("/"));
        self.handle
            .offer_command(CommandKind::Exec, OUTPUT, command)
            .unwrap()
    }

    /// Sends the head of a request, and gives the head of the answer and the connection.
    pub(super) async fn request(&self, head: &str) -> (String, TcpStream) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(socket.read_u8().await.unwrap());
        }
        (String::from_utf8(answer).unwrap(), socket)
    }

    /// The whole answer to a request that is refused.
    async fn refused(&self, method: &str, path: &str, headers: &str) -> String {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        let (mut answer, mut socket) = self.request(&head).await;
        let length = answer
            .split("Content-Length: ")
            .nth(1)
            .unwrap()
            .split('\r')
            .next()
            .unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        socket.read_exact(&mut body).await.unwrap();
        answer.push_str(&String::from_utf8(body).unwrap());
        answer
    }

    /// Opens a command as a client over SPDY.
    async fn upgrade(&self, url: &str) -> TcpStream {
        let path = url.strip_prefix(&format!("http://{}", self.address)).unwrap();
        let (answer, socket) = self
            .request(&format!("POST {path} HTTP/1.1\r\nHost: x\r\n{SPDY}\r\n"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        socket
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused() {
    let server = Running::start(StreamServerOptions::default()).await;
    let path = |url: &str| url[format!("http://{}", server.address).len()..].to_owned();
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let cases = [
        ("GET", "/exec/12345678", SPDY, "404", "404 page not found\n"),
        ("GET", "/attach/TOKEN", SPDY, "404", "404 page not found\n"),
        ("GET", "/portforward/TOKEN", SPDY, "404", "404 page not found\n"),
        ("GET", "/exec/TOKEN/more", SPDY, "404", "404: Page Not Found"),
        ("GET", "/", SPDY, "404", "404: Page Not Found"),
        ("PUT", "/exec/TOKEN", SPDY, "405", "405: Method Not Allowed"),
        (
            "POST",
            "/exec/TOKEN",
            "",
            "400",
            "header X-Stream-Protocol-Version does not exist in request with 1 headers\n",
        ),
        (
            "POST",
            "/exec/TOKEN",
            "X-Stream-Protocol-Version: ,\r\n",
            "400",
            "contains [,], but no valid protocols\n",
        ),
        (
            "POST",
            "/exec/TOKEN",
            "X-Stream-Protocol-Version: v9, v8\r\n",
            "403",
            "client supports [v9 v8], server accepts [v4.channel.k8s.io v3.channel.k8s.io v2.channel.k8s.io \
             channel.k8s.io]\n",
        ),
        (
            "POST",
            "/exec/TOKEN",
            "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n",
            "400",
            "unable to upgrade: missing upgrade headers in request\n",
        ),
        (
            "GET",
            "/exec/TOKEN",
            websocket,
            "400",
            "missing or bad WebSocket Version\n",
        ),
        ("POST", "/exec/TOKEN", websocket, "405", "bad method\n"),
    ];
    for (method, case, headers, status, body) in cases {
        let url = path(&server.echo());
        let token = url.strip_prefix("/exec/").unwrap();
        let answer = server
            .refused(method, &case.replace("TOKEN", token), headers)
            .await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{case}: {answer}"
        );
        assert!(answer.ends_with(body), "{case}: {answer}");
        if status == "403" {
            assert_eq!(
                answer.matches("X-Accepted-Stream-Protocol-Versions: ").count(),
                4,
                "{answer}"
            );
        }
    }
    // A token is for one request, even if that is refused.
    let url = path(&server.echo());
    server.refused("POST", &url, "").await;
    assert!(
        server
            .refused("POST", &url, SPDY)
            .await
            .starts_with("HTTP/1.1 404 ")
    );
    server.stop().await;
}

#[tokio::test]
async fn offers_are_checked_and_bounded() {
    let server = Running::start(StreamServerOptions::default()).await;
    let offer = |options| {
        let command = Process::new(&["true"], std::path::Path::new("/"));
        server.handle.offer_command(CommandKind::Exec, options, command)
    };
    let tty = StreamOptions {
        tty: true,
        stderr: true,
        ..OUTPUT
    };
    assert_eq!(offer(tty).unwrap_err().kind, StreamErrorKind::InvalidArgument);
    assert_eq!(
        offer(StreamOptions::default()).unwrap_err().kind,
        StreamErrorKind::InvalidArgument
    );
    for _ in 0..1000 {
        offer(OUTPUT).unwrap();
    }
    let error = offer(OUTPUT).unwrap_err();
    assert_eq!(error.kind, StreamErrorKind::ResourceExhausted);
    let response = kubelet_server::streaming::stream_error_response(&error);
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "60");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_opens_no_streams_is_left() {
    let mut options = StreamServerOptions::default();
    options.timeouts.creation = Duration::from_millis(50);
    let server = Running::start(options).await;
    let mut socket = server.upgrade(&server.echo()).await;
    let mut rest = BytesMut::new();
    while socket.read_buf(&mut rest).await.unwrap() > 0 {}
    let goodbye = Decoder::new().decode(&mut rest).unwrap();
    assert_eq!(goodbye, Some(Frame::GoAway { last: 0, status: 0 }));
    server.stop().await;
}

#[tokio::test]
async fn an_idle_client_is_left() {
    let mut options = StreamServerOptions::default();
    options.timeouts.idle = Duration::from_millis(50);
    let server = Running::start(options).await;
    let forwarder = Pod {
        name: String::new(),
        answers: Vec::new(),
        refusal: String::new(),
    };
    let url = server
        .handle
        .offer_port_forward(&[], Box::new(forwarder))
        .unwrap();
    let path = url.strip_prefix(&format!("http://{}", server.address)).unwrap();
    let head = SPDY.replace("v4.channel", "portforward");
    let (_, mut socket) = server
        .request(&format!("POST {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n"))
        .await;
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn broken_frames_end_the_connection() {
    let server = Running::start(StreamServerOptions::default()).await;
    let mut socket = server.upgrade(&server.echo()).await;
    socket.write_all(&[0x80, 3, 0, 77, 0, 0, 0, 0]).await.unwrap();
    let mut rest = BytesMut::new();
    while matches!(socket.read_buf(&mut rest).await, Ok(1..)) {}
    assert_eq!(
        Decoder::new().decode(&mut rest).unwrap(),
        Some(Frame::GoAway { last: 0, status: 0 })
    );
    server.stop().await;
}

/// Reads nothing, and reports when it is dropped.
struct Endless {
    gone: oneshot::Sender<()>,
    started: oneshot::Sender<()>,
}

impl Endless {
    /// With what reports that it has started and that it is gone.
    fn new() -> (Box<Self>, oneshot::Receiver<()>, oneshot::Receiver<()>) {
        let (gone, is_gone) = oneshot::channel();
        let (started, is_started) = oneshot::channel();
        (Box::new(Self { gone, started }), is_started, is_gone)
    }
}

#[async_trait]
impl RemoteCommand for Endless {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        let Self { gone, started } = *self;
        let _held = (gone, streams);
        started.send(()).unwrap();
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_command_ends_with_its_client() {
    let server = Running::start(StreamServerOptions::default()).await;
    let (command, is_started, watch) = Endless::new();
    let url = server
        .handle
        .offer_command(CommandKind::Exec, OUTPUT, command)
        .unwrap();
    let (connection, client) = Connection::client(server.upgrade(&url).await);
    let running = tokio::spawn(connection.run());
    let _error = client.open(Headers::new().with("streamType", "error")).unwrap();
    let _stdout = client.open(Headers::new().with("streamType", "stdout")).unwrap();
    is_started.await.unwrap();
    running.abort();
    assert!(watch.await.is_err());
    server.stop().await;
}

/// More than a server takes that nobody reads from, and less than the kernel takes for it.
const UNREAD: usize = 1 << 20;

#[tokio::test]
async fn a_command_that_reads_nothing_ends_with_its_client_over_spdy() {
    let server = Running::start(StreamServerOptions::default()).await;
    let (command, is_started, is_gone) = Endless::new();
    let offered = server
        .handle
        .offer_command(CommandKind::Exec, IN_AND_OUT, command);
    let mut socket = server.upgrade(&offered.unwrap()).await;
    let (mut encoder, mut out) = (Encoder::new(), BytesMut::new());
    for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
        let headers = Headers::new().with("streamType", kind);
        let (associated, priority, slot, fin, unidirectional) = (0, 0, 0, false, false);
        let frame = Frame::SynStream {
            stream,
            associated,
            priority,
            slot,
            fin,
            unidirectional,
            headers,
        };
        encoder.encode(&frame, &mut out).unwrap();
    }
    for _ in 0..UNREAD / 10_000 {
        let data = Bytes::from(vec![7; 10_000]);
        let (stream, fin) = (3, false);
        encoder
            .encode(&Frame::Data { stream, fin, data }, &mut out)
            .unwrap();
    }
    socket.write_all(&out).await.unwrap();
    is_started.await.unwrap();
    drop(socket);
    assert!(is_gone.await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn a_command_that_reads_nothing_ends_with_its_client_over_websocket() {
    // The second takes no more than fits into the buffer of its channel.
    for unread in [UNREAD, 200 << 10] {
        let server = Running::start(StreamServerOptions::default()).await;
        let (command, is_started, is_gone) = Endless::new();
        let offered = server
            .handle
            .offer_command(CommandKind::Exec, IN_AND_OUT, command);
        let url = offered.unwrap();
        let path = url.strip_prefix(&format!("http://{}", server.address)).unwrap();
        let (answer, mut socket) = server
            .request(&format!(
                "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        for _ in 0..unread / 10_001 {
            // Binary, masked with zeros: the channel and its bytes.
            let mut frame = vec![0x82, 0xfe];
            frame.extend(10_001_u16.to_be_bytes());
            frame.extend([0; 4]);
            frame.extend([0; 10_001]);
            socket.write_all(&frame).await.unwrap();
        }
        is_started.await.unwrap();
        drop(socket);
        assert!(is_gone.await.is_err());
        server.stop().await;
    }
}

#[tokio::test]
async fn much_goes_both_ways_through_our_own_client() {
    let server = Running::start(StreamServerOptions::default()).await;
    let command = Process::new(&["cat"], std::path::Path::new("/"));
    let url = server
        .handle
        .offer_command(CommandKind::Exec, IN_AND_OUT, command)
        .unwrap();
    let (connection, client) = Connection::client(server.upgrade(&url).await);
    let running = tokio::spawn(connection.run());
    let [mut error, mut stdin, mut stdout] = ["error", "stdin", "stdout"]
        .map(|kind| client.open(Headers::new().with("streamType", kind)).unwrap());
    assert!(stdout.replied().await);
    let sent: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    let write = async {
        stdin.write_all(&sent).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, read) = tokio::join!(write, stdout.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent);
    let mut status = String::new();
    error.read_to_string(&mut status).await.unwrap();
    assert_eq!(status, r#"{"metadata":{},"status":"Success"}"#);
    running.await.unwrap().unwrap();
    server.stop().await;
}

/// A client that keeps windows gets no more than its window, and the rest when it asks.
#[tokio::test]
async fn windows_of_a_client_are_honoured() {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (connection, server) = Connection::server(ours);
    tokio::spawn(connection.run());
    let (mut reader, mut writer) = tokio::io::split(theirs);
    let mut encoder = Encoder::new();
    let mut out = BytesMut::new();
    let headers = Headers::new().with("streamType", "stdout");
    let frames = [
        Frame::Settings {
            clear: false,
            entries: vec![(0, 7, 1000)],
        },
        Frame::SynStream {
            stream: 1,
            associated: 0,
            priority: 0,
            slot: 0,
            fin: false,
            unidirectional: false,
            headers,
        },
        Frame::Ping { id: 1 },
    ];
    frames
        .iter()
        .for_each(|frame| encoder.encode(frame, &mut out).unwrap());
    writer.write_all(&out).await.unwrap();
    let mut stream = server.accept().await.unwrap();
    let writing = tokio::spawn(async move {
        stream.write_all(&[7; 1500]).await.unwrap();
        stream
    });
    let mut decoder = Decoder::new();
    let mut input = BytesMut::new();
    let mut next = async || loop {
        if let Some(frame) = decoder.decode(&mut input).unwrap() {
            return frame;
        }
        assert!(reader.read_buf(&mut input).await.unwrap() > 0);
    };
    assert_eq!(next().await, Frame::Ping { id: 1 });
    let data = |length: usize| Frame::Data {
        stream: 1,
        fin: false,
        data: Bytes::from(vec![7; length]),
    };
    assert_eq!(next().await, data(1000));
    // The answer to this comes before any more data.
    out.clear();
    encoder.encode(&Frame::Ping { id: 3 }, &mut out).unwrap();
    writer.write_all(&out).await.unwrap();
    assert_eq!(next().await, Frame::Ping { id: 3 });
    assert!(!writing.is_finished());
    out.clear();
    encoder
        .encode(
            &Frame::WindowUpdate {
                stream: 1,
                delta: 600,
            },
            &mut out,
        )
        .unwrap();
    writer.write_all(&out).await.unwrap();
    assert_eq!(next().await, data(500));
    writing.await.unwrap();
}

/// What a client sends on a stream that nobody reads is not kept without end.
#[tokio::test]
async fn an_unread_stream_is_bounded() {
    let (ours, theirs) = tokio::io::duplex(1 << 10);
    let (connection, server) = Connection::server(ours);
    tokio::spawn(connection.run());
    let (client_connection, client) = Connection::client(theirs);
    tokio::spawn(client_connection.run());
    let mut sending = client.open(Headers::new()).unwrap();
    let mut received = server.accept().await.unwrap();
    received.reply();
    let writing = tokio::spawn(async move {
        let mut sent = 0;
        while sent < 4 << 20 {
            sent += sending.write(&[1; 4096]).await.unwrap();
        }
        sending.shutdown().await.unwrap();
        sending
    });
    let mut total = 0;
    let mut buffer = vec![0; 100];
    // The writer cannot be done before we have read most of it.
    while total < 3 << 20 {
        assert!(!writing.is_finished());
        total += received.read(&mut buffer).await.unwrap();
    }
    total += tokio::io::copy(&mut received, &mut tokio::io::sink())
        .await
        .unwrap() as usize;
    assert_eq!(total, 4 << 20);
    writing.await.unwrap();
}

/// A stream that our client does not read holds up no other.
#[tokio::test]
async fn a_slow_reader_slows_its_stream_only() {
    let (ours, theirs) = tokio::io::duplex(1 << 10);
    let (connection, server) = Connection::server(ours);
    tokio::spawn(connection.run());
    let (client_connection, client) = Connection::client(theirs);
    tokio::spawn(client_connection.keep_windows().run());
    let mut unread = client.open(Headers::new()).unwrap();
    let mut read = client.open(Headers::new()).unwrap();
    for _ in 0..2 {
        let mut stream = server.accept().await.unwrap();
        stream.reply();
        tokio::spawn(async move {
            stream.write_all(&vec![1; 3 << 20]).await.unwrap();
            stream.shutdown().await.unwrap();
        });
    }
    let sink = &mut tokio::io::sink();
    assert_eq!(tokio::io::copy(&mut read, sink).await.unwrap(), 3 << 20);
    assert_eq!(tokio::io::copy(&mut unread, sink).await.unwrap(), 3 << 20);
}

/// Streams that have ended make room for others.
#[tokio::test]
async fn a_connection_forwards_without_end() {
    let server = Running::start(StreamServerOptions::default()).await;
    let answers = vec![("/index.html".to_owned(), b"hello".to_vec())];
    let forwarder = Pod {
        name: String::new(),
        answers,
        refusal: String::new(),
    };
    let url = server
        .handle
        .offer_port_forward(&[], Box::new(forwarder))
        .unwrap();
    let path = url.strip_prefix(&format!("http://{}", server.address)).unwrap();
    let head = SPDY.replace("v4.channel", "portforward");
    let (_, socket) = server
        .request(&format!("POST {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n"))
        .await;
    let (connection, client) = Connection::client(socket);
    let running = tokio::spawn(connection.run());
    for number in 0..3000 {
        let open = |kind| {
            let headers = Headers::new().with("streamType", kind).with("port", "8080");
            client
                .open(headers.with("requestID", &number.to_string()))
                .unwrap()
        };
        let (mut error, mut data) = (open("error"), open("data"));
        error.shutdown().await.unwrap();
        data.write_all(b"GET /index.html HTTP/1.1\r\n\r\n").await.unwrap();
        data.shutdown().await.unwrap();
        let mut answer = String::new();
        data.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "hello");
        error.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "hello");
    }
    client.close();
    running.await.unwrap().unwrap();
    server.stop().await;
}

/// A runtime closes the connection as soon as it has sent everything. A client that writes to it then would lose what it
/// has not read.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_runtime_sent_before_it_closed_is_read() {
    const SENT: usize = 20_000_000;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let (mut input, mut decoder) = (BytesMut::new(), Decoder::new());
        let stream = loop {
            assert!(socket.read_buf(&mut input).await.unwrap() > 0);
            if let Some(Frame::SynStream { stream, .. }) = decoder.decode(&mut input).unwrap() {
                break stream;
            }
        };
        let (mut encoder, mut out) = (Encoder::new(), BytesMut::new());
        let (fin, headers) = (false, Headers::new());
        encoder
            .encode(&Frame::SynReply { stream, fin, headers }, &mut out)
            .unwrap();
        for place in 0..SENT / 10_000 {
            let (fin, data) = (place == SENT / 10_000 - 1, Bytes::from(vec![7; 10_000]));
            encoder
                .encode(&Frame::Data { stream, fin, data }, &mut out)
                .unwrap();
            socket.write_all(&out.split()).await.unwrap();
        }
    });
    let (connection, client) = Connection::client(TcpStream::connect(address).await.unwrap());
    let running = tokio::spawn(connection.run());
    let mut stream = client.open(Headers::new()).unwrap();
    let read = tokio::io::copy(&mut stream, &mut tokio::io::sink())
        .await
        .unwrap();
    assert_eq!(usize::try_from(read).unwrap(), SENT);
    runtime.await.unwrap();
    drop(running.await.unwrap());
}
