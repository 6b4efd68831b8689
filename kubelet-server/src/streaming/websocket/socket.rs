//! A WebSocket connection whose messages belong to channels.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode;
use tracing::{debug, warn};

use super::super::spdy::connection::{Activity, SIGN_OF_LIFE};
use super::frame::{self, Decoder, FrameError, MAX_FRAME, Piece};
use super::io::{self, Incoming, Outgoing, ReadError};
use super::message::{Codec, MessageError, MessageReader, Received};

/// So many bytes of the client wait in a channel until the command reads them.
pub(crate) const INPUT_BUFFER: usize = 256 << 10;
/// So many bytes of the command wait in a channel until they are sent.
pub(crate) const OUTPUT_BUFFER: usize = 64 << 10;
/// The longest message that we send.
const MAX_SENT: usize = 32 << 10;
/// After our goodbye, so long the client may take to close the connection.
const LINGER: Duration = Duration::from_secs(5);

/// The sending half.
pub(crate) struct Sender<T> {
    outgoing: Mutex<Outgoing<WriteHalf<T>>>,
    codec: Codec,
    activity: Activity,
}

/// The receiving half.
pub(crate) struct Receiver<T> {
    incoming: Incoming<ReadHalf<T>>,
}

/// Where the bytes of each channel go. `None` if they are thrown away.
pub(crate) type Inbound = Vec<Option<DuplexStream>>;

/// Why a client is not read any more.
enum End {
    /// It has closed the connection.
    Gone,
    /// It has sent a close frame, and gets one with this code.
    Closed(u16),
    /// It gets a close frame with this code, and may take its time to read it.
    Refused(u16),
}

/// The two halves of a new connection.
pub(crate) fn open<T: AsyncRead + AsyncWrite + Unpin>(io: T, codec: Codec) -> (Sender<T>, Receiver<T>) {
    let (reader, writer) = tokio::io::split(io);
    let sender = Sender {
        outgoing: Mutex::new(Outgoing::new(writer)),
        codec,
        activity: Activity::new(),
    };
    let incoming = Incoming::new(reader, Decoder::new(Some(MAX_FRAME)));
    (sender, Receiver { incoming })
}

/// Logs why the connection of a client ends.
pub(crate) fn log(error: &ReadError) {
    match error {
        ReadError::Frame(error @ FrameError::TooLong { .. }) => {
            warn!(%error, "closing the WebSocket of a client")
        }
        ReadError::Frame(error) => debug!(%error, "closing the WebSocket of a client"),
        ReadError::Io(error) => debug!(%error, "the client's WebSocket failed"),
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Sender<T> {
    /// Sends one message. `false` if the client is gone.
    pub(crate) async fn send(&self, channel: u8, data: &[u8]) -> bool {
        let message = self.codec.write(channel, data);
        let kind = match self.codec {
            Codec::Binary | Codec::BinaryWithClose => io::BINARY,
            Codec::Base64 => io::TEXT,
        };
        self.send_frame(kind, &message).await
    }

    async fn send_frame(&self, kind: OpCode, payload: &[u8]) -> bool {
        let sent = self.outgoing.lock().await.send(kind, payload).await.is_ok();
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
            if self.outgoing.lock().await.send(io::PONG, &[]).await.is_err() {
                return;
            }
        }
    }

    /// Says goodbye. Some clients look for it only at the end of the connection, so that follows at once.
    async fn close(&self, code: u16) {
        drop(self.outgoing.lock().await.close(code).await);
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Receiver<T> {
    /// Hands the client's bytes to the channels as they arrive, until the client is gone or breaks the protocol. A channel whose
    /// reader is slow holds up the others, but not what is sent. That the client is gone is noticed all the same.
    async fn run(&mut self, sender: &Sender<T>, mut inbound: Inbound) -> End {
        let mut messages = MessageReader::new(sender.codec);
        loop {
            let (first, last, data) = match self.next(sender).await {
                Ok((first, last, data)) => (first, last, data),
                Err(end) => return end,
            };
            match messages.read(first, last, data) {
                Ok(Received::Data { channel, data }) => {
                    let Some(slot) = inbound.get_mut(usize::from(channel)) else {
                        continue;
                    };
                    let Some(writer) = slot else { continue };
                    let written = tokio::select! {
                        biased;
                        written = writer.write_all(&data) => written,
                        () = sender.gone_while_unread() => {
                            debug!("the client left before its input was read");
                            return End::Gone;
                        }
                    };
                    if written.is_err() {
                        // Nobody reads it any more.
                        *slot = None;
                    }
                }
                Ok(Received::Close { channel }) => match inbound.get_mut(usize::from(channel)) {
                    Some(slot) => *slot = None,
                    None => {
                        debug!(channel, "the client ends a channel that does not exist");
                        return End::Refused(frame::NORMAL);
                    }
                },
                Ok(Received::Nothing) => {}
                Err(error @ MessageError::CloseSignal) => {
                    debug!(%error, "closing the WebSocket of a client");
                    return End::Refused(frame::NORMAL);
                }
                Err(error) => debug!(%error, "message of the client is thrown away"),
            }
        }
    }

    /// The next piece of a message.
    async fn next(&mut self, sender: &Sender<T>) -> Result<(bool, bool, bytes::Bytes), End> {
        loop {
            let piece = match self.incoming.next().await {
                Ok(Some(piece)) => piece,
                Ok(None) => return Err(End::Gone),
                Err(error) => {
                    log(&error);
                    return Err(match error {
                        ReadError::Io(_) => End::Gone,
                        ReadError::Frame(error) => End::Refused(error.close_code()),
                    });
                }
            };
            sender.activity.note();
            match piece {
                Piece::Data {
                    first, last, data, ..
                } => return Ok((first, last, data)),
                Piece::Ping(data) => {
                    if !sender.send_frame(io::PONG, &data).await {
                        return Err(End::Gone);
                    }
                }
                Piece::Pong => {}
                Piece::Close(code) => return Err(End::Closed(code.unwrap_or(frame::NORMAL))),
            }
        }
    }

    /// Waits until the client has closed the connection, too. What it still sends is thrown away: a connection that is closed before
    /// everything was read is reset, and the client may never see the goodbye.
    async fn linger(&mut self) {
        let drain = async {
            while let Ok(Some(piece)) = self.incoming.next().await {
                if matches!(piece, Piece::Close(_)) {
                    return;
                }
            }
        };
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
    let end = tokio::select! {
        () = work => End::Refused(frame::NORMAL),
        end = receiver.run(sender, inbound) => end,
        () = sender.activity.idle_for(idle) => End::Refused(frame::NORMAL),
    };
    let (End::Closed(code) | End::Refused(code)) = end else {
        return;
    };
    let said = timeout(LINGER, sender.close(code)).await.is_ok();
    if said && matches!(end, End::Refused(_)) {
        receiver.linger().await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    const LENGTH: usize = 4 << 20;

    /// A frame of zeros, for channel 0.
    fn frame() -> Vec<u8> {
        let mut frame = vec![0x82, 0x80 | 127];
        frame.extend((LENGTH as u64).to_be_bytes());
        frame.resize(14 + LENGTH, 0);
        frame
    }

    /// What a client may send before anybody reads it, whatever the length of its frame.
    #[tokio::test(start_paused = true)]
    async fn an_unread_frame_takes_little_memory_and_holds_up_its_client() {
        let (ours, theirs) = tokio::io::duplex(1 << 10);
        let (sender, receiver) = open(ours, Codec::Binary);
        let (channel, mut reader) = tokio::io::duplex(INPUT_BUFFER);
        let mut serving = pin!(serve(
            &sender,
            receiver,
            vec![Some(channel)],
            Duration::ZERO,
            std::future::pending()
        ));
        let (mut from, mut to) = tokio::io::split(theirs);
        let frame = frame();
        let mut taken = 0;
        let client = async {
            while taken < frame.len() {
                let end = frame.len().min(taken + 1000);
                taken += to.write(&frame[taken..end]).await.unwrap();
            }
        };
        // Longer than the server takes to notice a client that is gone.
        tokio::select! {
            () = client => panic!("everything was taken"),
            () = &mut serving => panic!("the client was left"),
            () = sleep(Duration::from_secs(60)) => {}
        }
        assert!(
            (INPUT_BUFFER..INPUT_BUFFER + (100 << 10)).contains(&taken),
            "{taken} bytes were taken"
        );

        // Once somebody reads, all of it comes. The client reads the signs of life meanwhile.
        let mut signs = vec![0; 1 << 10];
        let read = async {
            let mut all = vec![1; LENGTH - 1];
            reader.read_exact(&mut all).await.unwrap();
            all
        };
        let client = async {
            to.write_all(&frame[taken..]).await.unwrap();
            std::future::pending::<()>().await;
        };
        let signs = async { while from.read(&mut signs).await.unwrap() > 0 {} };
        tokio::select! {
            all = read => assert!(all == vec![0; LENGTH - 1]),
            () = client => {}
            () = signs => panic!("the connection ended"),
            () = &mut serving => panic!("the client was left"),
        }
    }
}
