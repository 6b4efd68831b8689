//! What the driver of a connection and its streams share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::codec::{Encoder, encode_data};
use super::frame::{
    CANCEL, Frame, INITIAL_WINDOW, PROTOCOL_ERROR, REFUSED_STREAM, SETTING_INITIAL_WINDOW, SpdyError,
};
use super::headers::Headers;

/// The most streams that may be open at once.
pub(super) const MAX_STREAMS: usize = 1000;
/// Once so many received bytes wait in one stream, nothing more is read from the connection. Clients of Kubernetes ignore
/// windows, so this is what bounds the memory of a stream.
pub(super) const MAX_BUFFERED: usize = 256 << 10;
/// The same for all streams of a connection.
pub(super) const MAX_BUFFERED_ALL: usize = 2 << 20;
/// Once so many bytes wait to be sent, streams wait.
const MAX_OUT: usize = 64 << 10;
/// Once so many bytes of answers wait to be sent, the connection ends.
const MAX_OUT_CONTROL: usize = 1 << 20;
/// The longest data frame that we send.
const MAX_DATA: usize = 32 << 10;

#[derive(Default)]
pub(super) struct StreamState {
    pub(super) inbound: VecDeque<Bytes>,
    pub(super) buffered: usize,
    /// The peer sends no more.
    pub(super) remote_fin: bool,
    /// We send no more.
    pub(super) local_fin: bool,
    pub(super) replied: bool,
    /// Nobody holds the [`Stream`](super::Stream) any more.
    pub(super) dropped: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    send_window: i64,
    consumed: u32,
}

impl StreamState {
    pub(super) fn wake(&mut self) {
        wake(&mut self.reader);
        wake(&mut self.writer);
    }

    fn closed(&self) -> bool {
        self.remote_fin && self.local_fin
    }
}

pub(super) struct State {
    server: bool,
    encoder: Encoder,
    pub(super) out: BytesMut,
    /// So many bytes of `out` are sent only to notice that the peer is gone.
    pub(super) signs_of_life: usize,
    pub(super) streams: BTreeMap<u32, StreamState>,
    /// Streams that the peer opened and nobody accepted yet.
    pub(super) accepted: VecDeque<(u32, Headers)>,
    pub(super) acceptor: Option<Waker>,
    pub(super) driver_reader: Option<Waker>,
    pub(super) driver_writer: Option<Waker>,
    /// Streams that wait for room in `out`.
    waiting: Vec<Waker>,
    last_received: u32,
    next_id: u32,
    /// Whether the peer keeps windows. The SPDY library of Kubernetes does not; it never sends `WINDOW_UPDATE`, so that a
    /// sender that waits for it waits for ever.
    keeps_windows: bool,
    /// Whether we send `WINDOW_UPDATE`.
    pub(super) sends_updates: bool,
    initial_window: i64,
    send_window: i64,
    consumed: u32,
    buffered: usize,
    /// We sent `GOAWAY`.
    pub(super) closing: bool,
    /// The peer sent `GOAWAY`.
    pub(super) gone: bool,
    /// The connection ended.
    pub(super) dead: bool,
}

/// How much of a write was taken.
pub(super) enum Taken {
    Bytes(usize),
    Wait,
    Closed,
}

/// Wakes the task that waits, if there is one.
fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}

pub(super) type Shared = Arc<Mutex<State>>;

impl State {
    pub(super) fn shared(server: bool) -> Shared {
        Arc::new(Mutex::new(Self {
            server,
            encoder: Encoder::new(),
            out: BytesMut::new(),
            signs_of_life: 0,
            streams: BTreeMap::new(),
            accepted: VecDeque::new(),
            acceptor: None,
            driver_reader: None,
            driver_writer: None,
            waiting: Vec::new(),
            last_received: 0,
            next_id: if server { 2 } else { 1 },
            keeps_windows: false,
            sends_updates: server,
            initial_window: i64::from(INITIAL_WINDOW),
            send_window: i64::from(INITIAL_WINDOW),
            consumed: 0,
            buffered: 0,
            closing: false,
            gone: false,
            dead: false,
        }))
    }

    /// Puts a frame into the outgoing bytes.
    pub(super) fn send(&mut self, frame: &Frame) -> Result<(), SpdyError> {
        if self.out.len() > MAX_OUT_CONTROL {
            return Err(SpdyError::Flood);
        }
        self.encoder.encode(frame, &mut self.out)?;
        wake(&mut self.driver_writer);
        Ok(())
    }

    /// As [`send`](Self::send), by a stream: if it fails, the connection ends.
    pub(super) fn send_or_die(&mut self, frame: &Frame) {
        if self.send(frame).is_err() {
            self.die();
        }
    }

    /// Takes the outgoing bytes, and wakes the streams that waited for it.
    pub(super) fn take_out(&mut self) -> BytesMut {
        for waker in self.waiting.drain(..) {
            waker.wake();
        }
        self.out.split()
    }

    /// Opens a stream of ours.
    pub(super) fn open(&mut self, headers: Headers) -> Option<u32> {
        if self.dead || self.closing || self.gone || self.streams.len() >= MAX_STREAMS {
            return None;
        }
        let stream = self.next_id;
        self.next_id += 2;
        self.streams.insert(
            stream,
            StreamState {
                send_window: self.initial_window,
                ..Default::default()
            },
        );
        let (associated, priority, slot) = (0, 0, 0);
        let (fin, unidirectional) = (false, false);
        self.send_or_die(&Frame::SynStream {
            stream,
            associated,
            priority,
            slot,
            fin,
            unidirectional,
            headers,
        });
        Some(stream)
    }

    /// Does what a frame of the peer asks for.
    pub(super) fn receive(&mut self, frame: Frame) -> Result<(), SpdyError> {
        match frame {
            Frame::SynStream {
                stream,
                fin,
                unidirectional,
                headers,
                ..
            } => return self.receive_stream(stream, fin, unidirectional, headers),
            Frame::SynReply { stream, fin, .. } => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.replied = true;
                    state.remote_fin |= fin;
                    state.wake();
                }
                self.forget_closed(stream);
            }
            Frame::Headers { stream, fin, .. } => self.receive_data(stream, fin, Bytes::new()),
            Frame::Data { stream, fin, data } => self.receive_data(stream, fin, data),
            Frame::RstStream { stream, .. } => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.remote_fin = true;
                    state.local_fin = true;
                    state.wake();
                }
                self.forget_closed(stream);
            }
            Frame::Settings { entries, .. } => {
                self.keeps_windows = true;
                for (_, id, value) in entries {
                    if id == SETTING_INITIAL_WINDOW {
                        self.change_initial_window(value & 0x7fff_ffff);
                    }
                }
            }
            Frame::Ping { id } => {
                // An id of our own kind is the answer to ours.
                if (id % 2 == 1) == self.server {
                    return self.send(&Frame::Ping { id });
                }
            }
            Frame::GoAway { .. } => self.gone = true,
            Frame::WindowUpdate { stream, delta } => {
                self.keeps_windows = true;
                return self.open_window(stream, delta);
            }
        }
        Ok(())
    }

    /// The peer opens a stream.
    fn receive_stream(
        &mut self,
        stream: u32,
        fin: bool,
        unidirectional: bool,
        headers: Headers,
    ) -> Result<(), SpdyError> {
        if self.closing || self.gone {
            return Ok(());
        }
        let is_theirs = (stream % 2 == 1) == self.server;
        if !is_theirs || stream <= self.last_received {
            let status = PROTOCOL_ERROR;
            return self.send(&Frame::RstStream { stream, status });
        }
        self.last_received = stream;
        if self.streams.len() >= MAX_STREAMS {
            let status = REFUSED_STREAM;
            return self.send(&Frame::RstStream { stream, status });
        }
        let state = StreamState {
            remote_fin: fin,
            local_fin: unidirectional,
            send_window: self.initial_window,
            ..Default::default()
        };
        self.streams.insert(stream, state);
        self.accepted.push_back((stream, headers));
        wake(&mut self.acceptor);
        Ok(())
    }

    /// The peer sets the window with which streams begin. That of open ones changes by as much.
    fn change_initial_window(&mut self, to: u32) {
        let change = i64::from(to) - self.initial_window;
        self.initial_window += change;
        for state in self.streams.values_mut() {
            state.send_window += change;
            state.wake();
        }
    }

    /// The peer takes more bytes of a stream, or of the connection (stream 0).
    fn open_window(&mut self, stream: u32, delta: u32) -> Result<(), SpdyError> {
        let window = match stream {
            0 => Some(&mut self.send_window),
            _ => self.streams.get_mut(&stream).map(|state| &mut state.send_window),
        };
        if let Some(window) = window {
            *window += i64::from(delta);
            if *window > i64::from(i32::MAX) {
                return Err(SpdyError::Window);
            }
        }
        self.streams.values_mut().for_each(StreamState::wake);
        Ok(())
    }

    fn receive_data(&mut self, stream: u32, fin: bool, data: Bytes) {
        let length = data.len();
        // The window of the connection opens at once: if it waited for readers, a stream that nobody reads would hold up
        // the others. The windows of the streams bound what waits.
        self.consume_connection(length);
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        if length > 0 && !state.remote_fin && !state.dropped {
            state.buffered += length;
            self.buffered += length;
            state.inbound.push_back(data);
        }
        state.remote_fin |= fin;
        wake(&mut state.reader);
        self.forget_closed(stream);
    }

    /// Whether so much waits to be read that no more frames are to be received. `stream` is the one that got bytes last.
    pub(super) fn full(&self, stream: u32) -> bool {
        let waits = self
            .streams
            .get(&stream)
            .is_some_and(|s| !s.dropped && s.buffered > MAX_BUFFERED);
        !self.dead && (waits || self.buffered > MAX_BUFFERED_ALL)
    }

    /// The reader of a stream took bytes.
    pub(super) fn consume(&mut self, stream: u32, length: usize) {
        self.buffered -= length;
        if let Some(state) = self.streams.get_mut(&stream) {
            state.buffered -= length;
            state.consumed = state.consumed.saturating_add(length as u32);
            if self.sends_updates && !state.remote_fin && state.consumed >= INITIAL_WINDOW / 2 {
                let delta = std::mem::take(&mut state.consumed);
                self.send_or_die(&Frame::WindowUpdate { stream, delta });
            }
        }
        wake(&mut self.driver_reader);
    }

    fn consume_connection(&mut self, length: usize) {
        self.consumed = self.consumed.saturating_add(length as u32);
        if self.sends_updates && self.consumed >= INITIAL_WINDOW / 2 {
            let delta = std::mem::take(&mut self.consumed);
            self.send_or_die(&Frame::WindowUpdate { stream: 0, delta });
        }
    }

    /// Puts bytes of a stream into the outgoing bytes.
    pub(super) fn write(&mut self, stream: u32, data: &[u8], waker: &Waker) -> Taken {
        let dead = self.dead || self.closing;
        let Some(state) = self.streams.get_mut(&stream).filter(|s| !dead && !s.local_fin) else {
            return Taken::Closed;
        };
        let mut length = data.len().min(MAX_DATA);
        if self.keeps_windows {
            let window = state.send_window.min(self.send_window);
            if window <= 0 {
                state.writer = Some(waker.clone());
                return Taken::Wait;
            }
            length = length.min(usize::try_from(window).unwrap_or(usize::MAX));
        }
        if self.out.len() >= MAX_OUT {
            // A task that waits for something else, too, comes here often.
            if !self.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
                self.waiting.push(waker.clone());
            }
            return Taken::Wait;
        }
        if length == 0 {
            return Taken::Bytes(0);
        }
        if encode_data(stream, false, &data[..length], &mut self.out).is_err() {
            return Taken::Closed;
        }
        state.send_window -= length as i64;
        self.send_window -= length as i64;
        wake(&mut self.driver_writer);
        Taken::Bytes(length)
    }

    /// Ends our side of a stream.
    pub(super) fn finish(&mut self, stream: u32) {
        let dead = self.dead;
        let Some(state) = self.streams.get_mut(&stream).filter(|s| !dead && !s.local_fin) else {
            return;
        };
        state.local_fin = true;
        self.send_or_die(&Frame::Data {
            stream,
            fin: true,
            data: Bytes::new(),
        });
        self.forget_closed(stream);
    }

    /// Ends both sides of a stream. What was received can still be read.
    pub(super) fn reset(&mut self, stream: u32) {
        let dead = self.dead;
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let send = !state.local_fin && !dead;
        state.local_fin = true;
        state.remote_fin = true;
        state.wake();
        if send {
            self.send_or_die(&Frame::RstStream {
                stream,
                status: CANCEL,
            });
        }
        self.forget_closed(stream);
    }

    /// Nobody holds the stream any more. What it still receives is thrown away.
    pub(super) fn release(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.dropped = true;
        state.inbound.clear();
        let buffered = std::mem::take(&mut state.buffered);
        self.buffered -= buffered;
        self.forget_closed(stream);
        wake(&mut self.driver_reader);
    }

    fn forget_closed(&mut self, stream: u32) {
        if self.streams.get(&stream).is_some_and(|s| s.closed() && s.dropped) {
            self.streams.remove(&stream);
        }
    }

    /// Whether all streams have ended in both directions.
    pub(super) fn all_closed(&self) -> bool {
        self.accepted.is_empty() && self.streams.values().all(StreamState::closed)
    }

    /// Resets all streams that we have not ended, and says goodbye.
    pub(super) fn close(&mut self) {
        if self.closing || self.dead {
            return;
        }
        let open: Vec<u32> = self.streams.keys().copied().collect();
        for stream in open {
            self.reset(stream);
        }
        self.accepted.clear();
        self.send_or_die(&Frame::GoAway {
            last: self.last_received,
            status: 0,
        });
        self.closing = true;
        wake(&mut self.acceptor);
    }

    /// The connection ended: everybody who waits is woken. What was received can still be read.
    pub(super) fn die(&mut self) {
        self.dead = true;
        for state in self.streams.values_mut() {
            state.remote_fin = true;
            state.local_fin = true;
            state.wake();
        }
        wake(&mut self.acceptor);
        wake(&mut self.driver_reader);
        wake(&mut self.driver_writer);
        self.waiting.drain(..).for_each(Waker::wake);
    }
}
