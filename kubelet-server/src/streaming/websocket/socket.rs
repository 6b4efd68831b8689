//! A WebSocket connection whose messages belong to channels.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode};
use tracing::debug;

use super::super::spdy::connection::{Activity, SIGN_OF_LIFE};
use super::message::{Codec, Received};

/// The longest message that a client may send.
const MAX_MESSAGE: usize = 4 << 20;
/// So many bytes of the client wait in a channel until the command reads them.
pub(crate) const INPUT_BUFFER: usize = 256 << 10;
/// So many bytes of the command wait in a channel until they are sent.
pub(crate) const OUTPUT_BUFFER: usize = 64 << 10;
/// The longest message that we send.
const MAX_SENT: usize = 32 << 10;
/// After our goodbye, so long the client may take to close the connection.
const LINGER: Duration = Duration::from_secs(5);

/// The server's end of a WebSocket.
pub(crate) async fn accept<T: AsyncRead + AsyncWrite + Unpin>(io: T) -> WebSocketStream<T> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .write_buffer_size(0);
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// The sending half.
pub(crate) struct Sender<T> {
    sink: Mutex<SplitSink<WebSocketStream<T>, Message>>,
    codec: Codec,
    activity: Activity,
}

/// The receiving half.
pub(crate) struct Receiver<T> {
    stream: SplitStream<WebSocketStream<T>>,
}

/// Where the bytes of each channel go. `None` if they are thrown away.
pub(crate) type Inbound = Vec<Option<DuplexStream>>;

/// The two halves of a new connection.
pub(crate) async fn open<T: AsyncRead + AsyncWrite + Unpin>(io: T, codec: Codec) -> (Sender<T>, Receiver<T>) {
    let (sink, stream) = accept(io).await.split();
    (
        Sender {
            sink: Mutex::new(sink),
            codec,
            activity: Activity::new(),
        },
        Receiver { stream },
    )
}

impl<T: AsyncRead + AsyncWrite + Unpin> Sender<T> {
    /// Sends one message. `false` if the client is gone.
    pub(crate) async fn send(&self, channel: u8, data: &[u8]) -> bool {
        let message = self.codec.write(channel, data);
        let message = match self.codec {
            Codec::Binary | Codec::BinaryWithClose => Message::binary(message),
            Codec::Base64 => Message::text(String::from_utf8_lossy(&message).into_owned()),
        };
        let sent = self.sink.lock().await.send(message).await.is_ok();
        self.activity.note();
        sent
    }

    /// Sends all that comes from `source`.
    pub(crate) async fn pump(&self, channel: u8, source: Option<impl AsyncRead + Unpin>) {
        let Some(mut source) = source else { return };
        let mut buffer = Vec::with_capacity(MAX_SENT);
        loop {
            buffer.clear();
            let read = (&mut source).take(MAX_SENT as u64).read_buf(&mut buffer).await;
            if !matches!(read, Ok(1..)) || !self.send(channel, &buffer).await {
                return;
            }
        }
    }

    /// Returns when the client is gone, while nothing is read from it. A client that has closed the connection answers what
    /// it still gets with a reset, after which nothing more can be sent. An unasked pong is a sign of life that needs no
    /// answer (RFC 6455, 5.5.3).
    async fn gone_while_unread(&self) {
        loop {
            sleep(SIGN_OF_LIFE).await;
            if self
                .sink
                .lock()
                .await
                .send(Message::Pong(Bytes::new()))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// Says goodbye.
    pub(crate) async fn close(&self) {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = self.sink.lock().await.send(Message::Close(Some(frame))).await;
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Receiver<T> {
    /// Hands the client's bytes to the channels until the client is gone or breaks the protocol. A channel whose reader is
    /// slow holds up the others, but not what is sent. That the client is gone is noticed all the same.
    pub(crate) async fn run(&mut self, sender: &Sender<T>, mut inbound: Inbound) {
        loop {
            let message = match self.stream.next().await {
                Some(Ok(message)) => message,
                Some(Err(error)) => return debug!(%error, "the client's WebSocket failed"),
                None => return,
            };
            sender.activity.note();
            if !(message.is_binary() || message.is_text()) {
                continue;
            }
            match sender.codec.read(&message.into_data()) {
                Ok(Received::Data { channel, data }) => {
                    let Some(slot) = inbound.get_mut(usize::from(channel)) else {
                        continue;
                    };
                    let Some(writer) = slot else { continue };
                    let written = tokio::select! {
                        biased;
                        written = writer.write_all(&data) => written,
                        () = sender.gone_while_unread() => return debug!("the client left before its input was read"),
                    };
                    if written.is_err() {
                        // Nobody reads it any more.
                        *slot = None;
                    }
                }
                Ok(Received::Close { channel }) => match inbound.get_mut(usize::from(channel)) {
                    Some(slot) => *slot = None,
                    None => return debug!(channel, "the client ends a channel that does not exist"),
                },
                Ok(Received::Nothing) => {}
                Err(error) => debug!(%error, "message of the client is thrown away"),
            }
        }
    }

    /// Waits until the client has closed the connection, too.
    pub(crate) async fn linger(&mut self) {
        let drain = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(LINGER, drain).await;
    }
}

/// Runs what serves the client, until it ends, the client is gone, or nothing came or went for the idle timeout.
pub(crate) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    sender: &Sender<T>,
    mut receiver: Receiver<T>,
    inbound: Inbound,
    idle: Duration,
    work: impl Future<Output = ()>,
) {
    let idle = (!idle.is_zero()).then_some(idle);
    tokio::select! {
        () = work => {}
        () = receiver.run(sender, inbound) => return,
        () = sender.activity.idle_for(idle) => {}
    }
    if timeout(LINGER, sender.close()).await.is_ok() {
        receiver.linger().await;
    }
}
