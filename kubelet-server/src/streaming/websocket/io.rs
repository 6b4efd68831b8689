//! The frames of a connection, in both directions.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tokio_util::io::{poll_read_buf, poll_write_buf};

use super::frame::{Decoder, FrameError, Piece};

/// So many bytes are read at once.
const READ: usize = 32 << 10;

/// A binary message.
pub(crate) const BINARY: OpCode = OpCode::Data(Data::Binary);
/// A text message.
pub(crate) const TEXT: OpCode = OpCode::Data(Data::Text);
/// An answer to a ping, or a sign of life.
pub(crate) const PONG: OpCode = OpCode::Control(Control::Pong);
const CLOSE: OpCode = OpCode::Control(Control::Close);

/// Why nothing more can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// What comes from the client.
pub(crate) struct Incoming<R> {
    io: R,
    decoder: Decoder,
    input: BytesMut,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(crate) fn new(io: R, decoder: Decoder) -> Self {
        Self {
            io,
            decoder,
            input: BytesMut::new(),
        }
    }

    /// The next piece, or `None` at the end of the connection. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, ReadError> {
        poll_fn(|context| self.poll_next(context)).await
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, ReadError>> {
        loop {
            if let Some(piece) = self.decoder.decode(&mut self.input)? {
                return Poll::Ready(Ok(Some(piece)));
            }
            // Takes back the room of the pieces before, as nobody has them any more.
            self.input.reserve(READ);
            if ready!(poll_read_buf(Pin::new(&mut self.io), context, &mut self.input))? == 0 {
                return Poll::Ready(Ok(None));
            }
        }
    }
}

/// What goes to the client.
pub(crate) struct Outgoing<W> {
    io: W,
    /// The rest of a frame. It stays here if what sends the frame is dropped.
    out: BytesMut,
}

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    pub(crate) fn new(io: W) -> Self {
        Self {
            io,
            out: BytesMut::new(),
        }
    }

    /// Sends a frame, after what is left of the one before. If the future is dropped, the frame is sent with the next one, or not at
    /// all.
    pub(crate) async fn send(&mut self, kind: OpCode, payload: &[u8]) -> io::Result<()> {
        poll_fn(|context| self.poll_flush(context)).await?;
        self.push(kind, payload)?;
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Sends a close frame, and nothing more.
    pub(crate) async fn close(&mut self, code: u16) -> io::Result<()> {
        self.send(CLOSE, &code.to_be_bytes()).await?;
        self.io.shutdown().await
    }

    /// How many bytes are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len()
    }

    /// Adds a frame to what is to be sent.
    pub(crate) fn push(&mut self, opcode: OpCode, payload: &[u8]) -> io::Result<()> {
        let head = FrameHeader {
            opcode,
            ..FrameHeader::default()
        };
        let length = payload.len() as u64;
        self.out.reserve(head.len(length) + payload.len());
        head.format(length, &mut (&mut self.out).writer())
            .map_err(io::Error::other)?;
        self.out.extend_from_slice(payload);
        Ok(())
    }

    /// Adds a close frame.
    pub(crate) fn push_close(&mut self, code: u16) -> io::Result<()> {
        self.push(CLOSE, &code.to_be_bytes())
    }

    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.out.has_remaining() {
            if ready!(poll_write_buf(Pin::new(&mut self.io), context, &mut self.out))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        // An idle connection keeps no buffer.
        self.out = BytesMut::new();
        Pin::new(&mut self.io).poll_flush(context)
    }
}
