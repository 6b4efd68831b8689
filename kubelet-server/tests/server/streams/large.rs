//! Frames as long as the reference takes them, longer ones, and slow readers.

use async_trait::async_trait;
use bytes::{Buf as _, BytesMut};
use kubelet_core::runtime::streaming::{
    ByteStream, ClientStreams, CommandKind, PortForwarder, RemoteCommand, StreamError, StreamOptions,
    StreamingServer,
};
use kubelet_server::streaming::StreamServerOptions;
use kubelet_server::streaming::websocket::frame::MAX_FRAME;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::frames::frame;
use super::log::Log;
use super::server::Running;
use super::translate::{ask, node, websocket_request};

const MASK: [u8; 4] = [1, 0x80, 7, 0xfe];
/// The bytes of a long payload repeat after so many, and so do their masked ones.
const PERIOD: usize = 251 * 4 * 64;
const INPUT: StreamOptions = StreamOptions {
    stdin: true,
    stdout: true,
    stderr: false,
    tty: false,
};

/// The head of a binary frame, and the channel with which its payload begins.
fn begin(length: u64, channel: u8) -> Vec<u8> {
    let mut begin = vec![0x82, 0x80 | 127];
    begin.extend(length.to_be_bytes());
    begin.extend(MASK);
    begin.push(channel ^ MASK[0]);
    begin
}

fn pattern() -> Vec<u8> {
    (0..PERIOD).map(|place| (place % 251) as u8).collect()
}

/// Sends the payload of a frame after its channel, as far as it is taken.
async fn send_rest(to: &mut (impl AsyncWriteExt + Unpin), length: u64) -> std::io::Result<()> {
    let masked: Vec<u8> = pattern()
        .iter()
        .zip(MASK.iter().cycle())
        .map(|(byte, mask)| byte ^ mask)
        .collect();
    let (mut place, length) = (1, usize::try_from(length).unwrap());
    while place < length {
        let start = place % PERIOD;
        let piece = (PERIOD - start).min(length - place);
        to.write_all(&masked[start..start + piece]).await?;
        place += piece;
    }
    Ok(())
}

/// Reads so many bytes of a payload after its channel, and looks whether they are the right ones.
async fn read_rest(from: &mut (impl AsyncReadExt + Unpin), length: u64) {
    let (pattern, mut place) = (pattern(), 1);
    let mut buffer = vec![0; 64 << 10];
    while place < usize::try_from(length).unwrap() {
        let read = from.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the input ended after {place} bytes");
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let start = place % PERIOD;
            let same = rest.len().min(PERIOD - start);
            assert!(
                rest[..same] == pattern[start..start + same],
                "another byte near {place}"
            );
            rest.advance(same);
            place += same;
        }
    }
}

/// Reads a payload, says so, and ends.
struct Reads(u64);

#[async_trait]
impl RemoteCommand for Reads {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        read_rest(&mut streams.stdin.unwrap(), self.0).await;
        streams.stdout.unwrap().write_all(b"all").await.unwrap();
        Ok(0)
    }
}

/// The same on a port.
#[async_trait]
impl PortForwarder for Reads {
    async fn connect(&self, _: u16) -> Result<Box<dyn ByteStream>, StreamError> {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let length = self.0;
        tokio::spawn(async move {
            let mut ours = ours;
            read_rest(&mut ours, length).await;
            ours.write_all(b"all").await.unwrap();
        });
        Ok(Box::new(theirs))
    }
}

/// A stream whose server speaks WebSocket.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A command at the server of a runtime.
    Command(&'static str),
    /// A port at the server of a runtime.
    Port,
    /// A command at the node's server, which translates.
    Translated,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Command("v4.channel.k8s.io"),
        Self::Command("v5.channel.k8s.io"),
        Self::Command("channel.k8s.io"),
        Self::Port,
        Self::Translated,
    ];

    /// A client's connection after the handshake.
    async fn open(self, server: &Running, length: u64) -> TcpStream {
        let command = || {
            server
                .handle
                .offer_command(CommandKind::Exec, INPUT, Box::new(Reads(length)))
                .unwrap()
        };
        let (mut socket, protocol, target) = match self {
            Self::Translated => (
                node(command(), INPUT).await,
                "v5.channel.k8s.io",
                "/exec/x".to_owned(),
            ),
            Self::Command(protocol) => (
                TcpStream::connect(server.address).await.unwrap(),
                protocol,
                command(),
            ),
            Self::Port => {
                let offered = server
                    .handle
                    .offer_port_forward(&[80], Box::new(Reads(length)))
                    .unwrap();
                (
                    TcpStream::connect(server.address).await.unwrap(),
                    "v4.channel.k8s.io",
                    offered,
                )
            }
        };
        let path = target
            .trim_start_matches(&format!("http://{}", server.address))
            .to_owned();
        let answer = ask(
            &mut socket,
            &websocket_request(protocol).replace("/exec/x", &path),
        )
        .await;
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        socket
    }
}

/// What a server sends on channels 1 (of a command) or 0 (of a port), up to the code of its close frame.
async fn heard(socket: &mut (impl AsyncReadExt + Unpin)) -> (String, u16) {
    let (mut input, mut said) = (BytesMut::new(), String::new());
    loop {
        while input.len() >= 2 && input.len() >= 2 + usize::from(input[1]) {
            let length = usize::from(input[1]);
            assert!(length < 126, "a long frame");
            let mut payload = input.split_to(2 + length).split_off(2);
            match payload.first() {
                Some(3) if payload.len() == 2 => return (said, payload.get_u16()),
                Some(0 | 1) => said.push_str(std::str::from_utf8(&payload[1..]).unwrap_or_default()),
                _ => {}
            }
        }
        assert!(
            socket.read_buf(&mut input).await.unwrap() > 0,
            "the server left after {said:?}"
        );
    }
}

#[tokio::test]
async fn the_longest_frame_is_taken_and_a_longer_one_is_refused() {
    let log = Log::default();
    let _guard = log.collect();
    let server = Running::start(StreamServerOptions::default()).await;
    for way in Way::ALL {
        let socket = way.open(&server, MAX_FRAME).await;
        let (mut reader, mut writer) = socket.into_split();
        writer.write_all(&begin(MAX_FRAME, 0)).await.unwrap();
        let (sent, (said, code)) = tokio::join!(send_rest(&mut writer, MAX_FRAME), heard(&mut reader));
        sent.unwrap();
        assert!(said.contains("all"), "{way:?}: {said}");
        assert_eq!((code, log.take()), (1000, vec![]), "{way:?}");

        let too_long = MAX_FRAME + 1;
        let socket = way.open(&server, too_long).await;
        let (mut reader, mut writer) = socket.into_split();
        writer.write_all(&begin(too_long, 0)).await.unwrap();
        // A client that sends all before it reads gets to know it, too.
        send_rest(&mut writer, too_long).await.unwrap();
        let (said, code) = heard(&mut reader).await;
        assert!(!said.contains("all"), "{way:?}: {said}");
        assert_eq!(code, 1009, "{way:?}");
        let line = "closing the WebSocket of a client error=the client sent a frame of 33554433 bytes; the limit is 33554432";
        assert_eq!(log.take(), [line], "{way:?}");
        writer
            .write_all(&frame(0x88, &1009_u16.to_be_bytes()))
            .await
            .unwrap();
        drop(writer);
    }
    server.stop().await;
}

/// Tells what it reads.
struct Tells(mpsc::UnboundedSender<Vec<u8>>);

#[async_trait]
impl RemoteCommand for Tells {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        let mut stdin = streams.stdin.unwrap();
        loop {
            let mut piece = vec![0; 1 << 10];
            let read = stdin.read(&mut piece).await.unwrap();
            piece.truncate(read);
            if read == 0 || self.0.send(piece).is_err() {
                return Ok(0);
            }
        }
    }
}

#[tokio::test]
async fn a_frame_is_handed_on_as_it_arrives() {
    let server = Running::start(StreamServerOptions::default()).await;
    let (tells, mut told) = mpsc::unbounded_channel();
    let offered = server
        .handle
        .offer_command(CommandKind::Exec, INPUT, Box::new(Tells(tells)))
        .unwrap();
    let path = offered
        .trim_start_matches(&format!("http://{}", server.address))
        .to_owned();
    let head = websocket_request("v4.channel.k8s.io").replace("/exec/x", &path);
    let (_, mut socket) = server.request(&head).await;
    socket.write_all(&begin(MAX_FRAME, 0)).await.unwrap();
    for (place, byte) in (1_u8..100).enumerate() {
        socket.write_all(&[byte ^ MASK[(place + 1) % 4]]).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), [byte]);
    }
    drop(socket);
    assert_eq!(told.recv().await, None);
    server.stop().await;
}

/// The reference reads the messages of a tunnel with a library that has no limit unless it is set.
#[tokio::test]
async fn a_message_of_a_tunnel_may_have_any_length() {
    let length = MAX_FRAME + (1 << 20);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/portforward/x", listener.local_addr().unwrap());
    let runtime = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(socket.read_u8().await.unwrap());
        }
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                      X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n";
        socket.write_all(answer.as_bytes()).await.unwrap();
        assert_eq!(socket.read_u8().await.unwrap(), 0);
        read_rest(&mut socket, length).await;
        // Pings were answered meanwhile; then the client leaves.
        assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
    });
    let mut socket = node(target, INPUT).await;
    let answer = ask(&mut socket, &websocket_request("SPDY/3.1+portforward.k8s.io")).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    socket.write_all(&frame(0x89, b"there?")).await.unwrap();
    socket.write_all(&begin(length, 0)).await.unwrap();
    send_rest(&mut socket, length).await.unwrap();
    let mut pong = [0; 8];
    socket.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"\x8a\x06there?");
    socket
        .write_all(&frame(0x88, &1001_u16.to_be_bytes()))
        .await
        .unwrap();
    let mut close = [0; 4];
    socket.read_exact(&mut close).await.unwrap();
    assert_eq!(close, [0x88, 2, 3, 233]);
    runtime.await.unwrap();
}

#[tokio::test]
async fn a_tunnel_that_breaks_the_protocol_gets_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/portforward/x", listener.local_addr().unwrap());
    let runtime = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_buf(&mut Vec::new()).await.unwrap();
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        socket.write_all(answer.as_bytes()).await.unwrap();
        while matches!(socket.read(&mut [0; 64]).await, Ok(1..)) {}
    });
    let mut socket = node(target, INPUT).await;
    ask(&mut socket, &websocket_request("SPDY/3.1+portforward.k8s.io")).await;
    // Not masked.
    socket.write_all(&[0x82, 1, 0]).await.unwrap();
    assert_eq!(heard(&mut socket).await, (String::new(), 1002));
    runtime.await.unwrap();
}

#[tokio::test]
async fn more_ports_than_channels_are_refused() {
    let server = Running::start(StreamServerOptions::default()).await;
    for (count, expected) in [(127, "101"), (128, "400")] {
        let ports: Vec<u16> = (1..=count).collect();
        let offered = server
            .handle
            .offer_port_forward(&ports, Box::new(Reads(1)))
            .unwrap();
        let path = offered
            .trim_start_matches(&format!("http://{}", server.address))
            .to_owned();
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        let request = websocket_request("v4.channel.k8s.io").replace("/exec/x", &path);
        let answer = ask(&mut socket, &request).await;
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{count} ports");
    }
    server.stop().await;
}
