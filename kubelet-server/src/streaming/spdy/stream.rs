//! One stream of a connection: bytes in both directions.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::Frame;
use super::headers::Headers;
use super::state::{Shared, Taken};

/// One stream of a [`Connection`](super::Connection).
///
/// Reading ends when the peer ends or resets the stream, or the connection ends. Shutting it down ends our side only. A
/// stream that is dropped stays open until the connection closes, but what it receives is thrown away.
pub struct Stream {
    id: u32,
    headers: Headers,
    shared: Shared,
}

impl Stream {
    pub(super) fn new(id: u32, headers: Headers, shared: Shared) -> Self {
        Self { id, headers, shared }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The headers with which it was opened.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Accepts a stream that the peer opened.
    pub fn reply(&self) {
        let mut state = self.shared.lock();
        match state.streams.get_mut(&self.id) {
            Some(stream) if !stream.replied && !stream.local_fin => stream.replied = true,
            _ => return,
        }
        state.send_or_die(&Frame::SynReply {
            stream: self.id,
            fin: false,
            headers: Headers::new(),
        });
    }

    /// Waits until the peer accepted a stream of ours. `false` if it did not, or the connection ended.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn replied(&self) -> bool {
        std::future::poll_fn(|context| {
            let mut state = self.shared.lock();
            let dead = state.dead;
            match state.streams.get_mut(&self.id) {
                Some(stream) if stream.replied => Poll::Ready(true),
                Some(stream) if stream.local_fin || dead => Poll::Ready(false),
                Some(stream) => {
                    stream.writer = Some(context.waker().clone());
                    Poll::Pending
                }
                None => Poll::Ready(false),
            }
        })
        .await
    }

    /// Ends both directions.
    pub fn reset(&self) {
        self.shared.lock().reset(self.id);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.id)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().release(self.id);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        let Some(stream) = state.streams.get_mut(&self.id) else {
            return Poll::Ready(Ok(()));
        };
        let Some(front) = stream.inbound.front_mut() else {
            if stream.remote_fin {
                return Poll::Ready(Ok(()));
            }
            stream.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        let length = front.len().min(buffer.remaining());
        buffer.put_slice(&front[..length]);
        front.advance(length);
        if front.is_empty() {
            stream.inbound.pop_front();
        }
        state.consume(self.id, length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.shared.lock().write(self.id, data, context.waker()) {
            Taken::Bytes(length) => Poll::Ready(Ok(length)),
            Taken::Wait => Poll::Pending,
            Taken::Closed => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().finish(self.id);
        Poll::Ready(Ok(()))
    }
}
