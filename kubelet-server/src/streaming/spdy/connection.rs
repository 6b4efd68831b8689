//! A connection: it reads and writes the frames of its streams.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::codec::Decoder;
use super::frame::{Frame, INITIAL_WINDOW, SETTING_INITIAL_WINDOW, SpdyError};
use super::headers::Headers;
use super::state::{Shared, State};
use super::stream::Stream;

/// After our goodbye, so long the client may take to close the connection. Closing before it has read everything could lose
/// the last bytes.
const LINGER: Duration = Duration::from_secs(5);

/// While nothing is read from the peer because too much waits, it gets a sign of life so often.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// One end of a SPDY connection. Nothing moves unless [`run`](Self::run) is polled.
pub struct Connection<T> {
    io: T,
    shared: Shared,
    idle: Option<Duration>,
    ping: Option<Duration>,
}

/// Opens, accepts and closes the streams of a [`Connection`].
#[derive(Clone)]
pub struct Handle {
    shared: Shared,
}

impl<T: AsyncRead + AsyncWrite> Connection<T> {
    /// The server's end.
    pub fn server(io: T) -> (Self, Handle) {
        Self::new(io, true)
    }

    /// The client's end. It keeps no windows and sends none, like the clients of Kubernetes: a runtime closes the
    /// connection as soon as it has sent everything, and a frame that arrives after that makes the kernel drop what was
    /// not read yet.
    pub fn client(io: T) -> (Self, Handle) {
        Self::new(io, false)
    }

    /// Keeps windows at the client's end, too, so that a stream that is not read holds up no other. Only for a server that
    /// does not close the connection while the client may still send.
    #[must_use]
    pub fn keep_windows(self) -> Self {
        let entries = vec![(0, SETTING_INITIAL_WINDOW, INITIAL_WINDOW)];
        {
            let mut state = self.shared.lock();
            state.sends_updates = true;
            state.send_or_die(&Frame::Settings {
                clear: false,
                entries,
            });
        }
        self
    }

    fn new(io: T, server: bool) -> (Self, Handle) {
        let shared = State::shared(server);
        let handle = Handle {
            shared: shared.clone(),
        };
        (
            Self {
                io,
                shared,
                idle: None,
                ping: None,
            },
            handle,
        )
    }

    /// Ends the connection when so long no byte came or went. Zero means never.
    #[must_use]
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle = (!idle.is_zero()).then_some(idle);
        self
    }

    /// Sends a `PING` so often, which keeps the connection open through load balancers.
    #[must_use]
    pub fn ping_every(mut self, period: Duration) -> Self {
        self.ping = (!period.is_zero()).then_some(period);
        self
    }

    /// Moves the bytes until the peer is gone, or the connection was [closed](Handle::close) and all was sent.
    ///
    /// # Errors
    ///
    /// If the peer breaks the protocol, the connection fails or was idle too long.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the connection ends, and with it all streams.
    pub async fn run(self) -> Result<(), SpdyError> {
        let Self {
            io,
            shared,
            idle,
            ping,
        } = self;
        let _end = EndOnDrop(shared.clone());
        let (mut reader, mut writer) = tokio::io::split(io);
        let activity = Activity::new();
        let result = tokio::select! {
            biased;
            result = write_frames(&shared, &mut writer, &activity) => result.map(|()| true),
            result = read_frames(&shared, &mut reader, &activity) => result.map(|()| false),
            () = activity.idle_for(idle) => Err(SpdyError::Idle),
            error = send_pings(&shared, ping) => Err(error),
        };
        match result {
            Ok(true) => {
                // Closed by us.
                let mut rest = vec![0; 4096];
                let drain = async { while matches!(reader.read(&mut rest).await, Ok(1..)) {} };
                let _ = timeout(LINGER, drain).await;
                Ok(())
            }
            Ok(false) => {
                // Gone. What we still owe is sent as far as the connection takes it.
                let out = shared.lock().take_out();
                let flush = async {
                    writer.write_all(&out).await?;
                    writer.shutdown().await
                };
                let _ = timeout(LINGER, flush).await;
                Ok(())
            }
            Err(error) => {
                shared.lock().close();
                let out = shared.lock().take_out();
                let flush = async {
                    writer.write_all(&out).await?;
                    writer.flush().await
                };
                let _ = timeout(LINGER, flush).await;
                Err(error)
            }
        }
    }
}

impl Handle {
    /// The next stream that the peer opens. `None` once there will be no more. Only one task at a time may wait.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no stream is lost.
    pub async fn accept(&self) -> Option<Stream> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if let Some((id, headers)) = state.accepted.pop_front() {
                return Poll::Ready(Some(Stream::new(id, headers, self.shared.clone())));
            }
            if state.dead || state.closing {
                return Poll::Ready(None);
            }
            state.acceptor = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Opens a stream. `None` if the connection takes no more.
    pub fn open(&self, headers: Headers) -> Option<Stream> {
        let id = self.shared.lock().open(headers.clone())?;
        Some(Stream::new(id, headers, self.shared.clone()))
    }

    /// Ends our side of a stream, even if the [`Stream`] was dropped.
    pub fn finish(&self, stream: u32) {
        self.shared.lock().finish(stream);
    }

    /// Resets the streams whose our side has not ended, and ends the connection once all was sent.
    pub fn close(&self) {
        self.shared.lock().close();
    }
}

struct EndOnDrop(Shared);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.lock().die();
    }
}

async fn read_frames(
    shared: &Shared,
    reader: &mut (impl AsyncRead + Unpin),
    activity: &Activity,
) -> Result<(), SpdyError> {
    let mut decoder = Decoder::new();
    let mut input = BytesMut::with_capacity(8 << 10);
    loop {
        while let Some(frame) = decoder.decode(&mut input)? {
            let stream = match &frame {
                Frame::Data { stream, .. } => *stream,
                _ => 0,
            };
            shared.lock().receive(frame)?;
            let room = poll_fn(|context| {
                let mut state = shared.lock();
                if !state.full(stream) {
                    return Poll::Ready(());
                }
                state.driver_reader = Some(context.waker().clone());
                Poll::Pending
            });
            tokio::select! {
                biased;
                () = room => {}
                never = send_signs_of_life(shared) => match never {},
            }
        }
        {
            let state = shared.lock();
            if state.gone && state.all_closed() {
                return Ok(());
            }
        }
        input.reserve(8 << 10);
        if reader.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        activity.note();
    }
}

/// Nothing is read, so the end of the connection is not seen. But a peer that has closed it answers what it still gets with a
/// reset, after which writing fails. A wider window is a sign of life that needs no answer.
async fn send_signs_of_life(shared: &Shared) -> Infallible {
    loop {
        sleep(SIGN_OF_LIFE).await;
        let mut state = shared.lock();
        if state.sends_updates && !state.closing && state.out.is_empty() {
            state.send_or_die(&Frame::WindowUpdate { stream: 0, delta: 1 });
            state.signs_of_life = state.out.len();
        }
    }
}

async fn write_frames(
    shared: &Shared,
    writer: &mut (impl AsyncWrite + Unpin),
    activity: &Activity,
) -> Result<(), SpdyError> {
    loop {
        let out = poll_fn(|context| {
            let mut state = shared.lock();
            if state.dead || !state.out.is_empty() {
                let signs_of_life = std::mem::take(&mut state.signs_of_life);
                return Poll::Ready(Some((state.take_out(), signs_of_life)));
            }
            if state.closing {
                return Poll::Ready(None);
            }
            state.driver_writer = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        let Some((out, signs_of_life)) = out else {
            writer.shutdown().await?;
            return Ok(());
        };
        writer.write_all(&out).await?;
        writer.flush().await?;
        if out.len() > signs_of_life {
            activity.note();
        }
        if shared.lock().dead {
            return Err(SpdyError::Flood);
        }
    }
}

async fn send_pings(shared: &Shared, period: Option<Duration>) -> SpdyError {
    let Some(period) = period else {
        return std::future::pending().await;
    };
    let mut id = 1;
    loop {
        sleep(period).await;
        let mut state = shared.lock();
        // While what came waits for its reader, the connection is alive, and the peer may already have closed it.
        if !state.closing && state.driver_reader.is_none() {
            if let Err(error) = state.send(&Frame::Ping { id }) {
                return error;
            }
            id = (id + 2) & 0x7fff_ffff;
        }
    }
}

/// When bytes last came or went.
pub(crate) struct Activity {
    start: Instant,
    millis: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            millis: AtomicU64::new(0),
        }
    }

    pub(crate) fn note(&self) {
        self.millis
            .store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Returns when nothing was noted for so long. `None` means never.
    pub(crate) async fn idle_for(&self, limit: Option<Duration>) {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        loop {
            let last = self.start + Duration::from_millis(self.millis.load(Ordering::Relaxed));
            let until = last + limit;
            if Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }
}
