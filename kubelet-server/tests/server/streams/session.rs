//! The recorded sessions, and what their bytes mean.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine as _;
use bytes::BytesMut;
use kubelet_server::streaming::spdy::{Decoder, Frame, Headers};
use kubelet_server::streaming::websocket::message::{Codec, Received};

/// One recorded session: what a client sent, and what the server behind the kubelet answered.
pub(super) struct Session {
    pub(super) head: String,
    /// Whether the client sent it, and the bytes, in their order.
    pub(super) pieces: Vec<(bool, Vec<u8>)>,
}

/// All recorded sessions. The contents of the large file that they move are replaced by a pattern.
pub(super) fn sessions() -> Vec<Session> {
    let packed = include_bytes!("../../streams/sessions.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .unwrap();
    let all: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    let piece = |piece: &serde_json::Value| {
        let bytes = base64::prelude::BASE64_STANDARD
            .decode(piece[1].as_str().unwrap())
            .unwrap();
        (piece[0] == ">", bytes)
    };
    let session = |value: serde_json::Value| Session {
        head: value["head"].as_str().unwrap().to_owned(),
        pieces: value["frames"].as_array().unwrap().iter().map(piece).collect(),
    };
    all.into_iter().map(session).collect()
}

impl Session {
    pub(super) fn is_websocket(&self) -> bool {
        self.head.to_lowercase().contains("upgrade: websocket")
    }

    /// All bytes of one side. The server's begin with the head of its response.
    pub(super) fn bytes(&self, client: bool) -> Vec<u8> {
        self.pieces
            .iter()
            .filter(|(c, _)| *c == client)
            .flat_map(|(_, b)| b.clone())
            .collect()
    }

    pub(super) fn transcript(&self) -> Transcript {
        let mut transcript = Transcript::new(self.is_websocket());
        transcript.read(&self.bytes(false));
        transcript
    }

    pub(super) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    /// The values of a query parameter.
    pub(super) fn query(&self, name: &str) -> Vec<String> {
        let query = self.path().split_once('?').map_or("", |(_, q)| q);
        let pairs = form_urlencoded::parse(query.as_bytes());
        pairs
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.into_owned())
            .collect()
    }
}

/// What happened on a stream or channel. Neighbouring bytes are one event: how they were cut means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Reply(Headers),
    Data(Vec<u8>),
    Fin,
    Reset(u32),
    /// An empty message.
    Empty,
}

/// The meaning of what a server sent.
#[derive(Default)]
pub(super) struct Transcript {
    websocket: bool,
    buffer: BytesMut,
    decoder: Decoder,
    codec: Option<Codec>,
    /// The status line and the headers, names in lower case.
    pub(super) head: Option<(String, BTreeMap<String, String>)>,
    pub(super) streams: BTreeMap<u32, Vec<Event>>,
    /// `GOAWAY` or the code of a close frame.
    pub(super) goodbye: Vec<(u32, u32)>,
}

impl Transcript {
    pub(super) fn new(websocket: bool) -> Self {
        Self {
            websocket,
            ..Self::default()
        }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.head.is_none() {
            let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") else {
                return;
            };
            let head = String::from_utf8(self.buffer.split_to(end + 4).to_vec()).unwrap();
            let mut lines = head.trim_end().lines();
            let status = lines.next().unwrap().to_owned();
            let headers: BTreeMap<_, _> = lines
                .map(|line| line.split_once(": ").unwrap())
                .map(|(n, v)| (n.to_lowercase(), v.to_owned()))
                .collect();
            let protocol = headers.get("sec-websocket-protocol").map_or("", String::as_str);
            self.codec = Some(if protocol.contains("base64") {
                Codec::Base64
            } else {
                Codec::Binary
            });
            self.head = Some((status, headers));
        }
        if self.websocket {
            self.read_websocket()
        } else {
            self.read_spdy()
        }
    }

    fn read_spdy(&mut self) {
        while let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
            match frame {
                Frame::SynReply { stream, headers, .. } => self.note(stream, Event::Reply(headers)),
                Frame::Data { stream, fin, data } => {
                    if !data.is_empty() {
                        self.note(stream, Event::Data(data.to_vec()));
                    }
                    if fin {
                        self.note(stream, Event::Fin);
                    }
                }
                Frame::RstStream { stream, status } => self.note(stream, Event::Reset(status)),
                Frame::GoAway { last, status } => self.goodbye.push((last, status)),
                // The reference has none; a client may ignore them.
                Frame::WindowUpdate { .. } => {}
                other => panic!("a server does not send {other:?}"),
            }
        }
    }

    /// Frames of a server: they are not masked, and not in fragments.
    fn read_websocket(&mut self) {
        loop {
            let [first, second, ..] = self.buffer[..] else {
                return;
            };
            let (start, length) = match second {
                126 => match self.buffer[..] {
                    [_, _, a, b, ..] => (4, usize::from(u16::from_be_bytes([a, b]))),
                    _ => return,
                },
                length => (2, usize::from(length)),
            };
            if self.buffer.len() < start + length {
                return;
            }
            let payload = self.buffer.split_to(start + length).split_off(start);
            match (first, self.codec.unwrap()) {
                (0x88, _) => self
                    .goodbye
                    .push((u32::from(u16::from_be_bytes([payload[0], payload[1]])), 0)),
                (0x82, codec @ Codec::Binary) | (0x81, codec @ Codec::Base64) => {
                    match codec.read(&payload).unwrap() {
                        Received::Data { channel, data } if data.is_empty() => {
                            self.note(channel.into(), Event::Empty)
                        }
                        Received::Data { channel, data } => {
                            self.note(channel.into(), Event::Data(data.to_vec()))
                        }
                        other => panic!("a server does not send {other:?}"),
                    }
                }
                other => panic!("a server does not send {other:?}"),
            }
        }
    }

    fn note(&mut self, stream: u32, event: Event) {
        let events = self.streams.entry(stream).or_default();
        match (events.last_mut(), event) {
            (Some(Event::Data(data)), Event::Data(more)) => data.extend(more),
            (_, event) => events.push(event),
        }
    }

    /// The bytes of a stream.
    pub(super) fn data(&self, stream: u32) -> Vec<u8> {
        let events = self.streams.get(&stream).into_iter().flatten();
        let data = events.filter_map(|event| match event {
            Event::Data(data) => Some(data.clone()),
            _ => None,
        });
        data.flatten().collect()
    }

    /// Whether all that happened in `other` happened here, however it was ordered between streams.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let size = |event: &Event| match event {
            Event::Data(data) => data.len(),
            _ => 1,
        };
        self.head.is_some() >= other.head.is_some()
            && self.goodbye.len() >= other.goodbye.len()
            && other.streams.iter().all(|(stream, theirs)| {
                let ours = self.streams.get(stream).map_or(&[][..], Vec::as_slice);
                let sum = |events: &[Event], data: bool| -> usize {
                    events
                        .iter()
                        .filter(|e| matches!(e, Event::Data(_)) == data)
                        .map(size)
                        .sum()
                };
                sum(ours, true) >= sum(theirs, true) && sum(ours, false) >= sum(theirs, false)
            })
    }
}
