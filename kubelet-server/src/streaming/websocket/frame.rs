//! The frames that a client sends (RFC 6455), whose payload is handed out as it arrives.

use std::io::Cursor;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// The most bytes of a frame that belongs to channels (`DefaultMaxPayloadBytes` of `golang.org/x/net/websocket`, with which the
/// kubelet's `wsstream` reads). A longer one ends the connection.
pub const MAX_FRAME: u64 = 32 << 20;

/// The most bytes of a ping, a pong or a close frame (RFC 6455, 5.5).
pub const MAX_CONTROL: u64 = 125;

/// Close code: the connection has done its work.
pub(crate) const NORMAL: u16 = 1000;
/// Close code: the peer broke the protocol.
pub(crate) const PROTOCOL_ERROR: u16 = 1002;
/// Close code: the peer sent more than we take.
pub(crate) const TOO_BIG: u16 = 1009;

/// What came from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part of a message.
    Data {
        /// The message is text. Whether it is UTF-8 is not looked at.
        text: bool,
        /// It begins a message.
        first: bool,
        /// It ends its message.
        last: bool,
        /// The bytes.
        data: Bytes,
    },
    /// The client asks for a pong with the same bytes.
    Ping(Bytes),
    /// An answer, or a sign of life.
    Pong,
    /// The client sends nothing more. With a code, if it says one.
    Close(Option<u16>),
}

/// Why bytes of a client are not frames that a server takes. After each of these the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame beyond the limit.
    #[error("the client sent a frame of {length} bytes; the limit is {limit}")]
    TooLong {
        /// Its length.
        length: u64,
        /// The limit.
        limit: u64,
    },
    /// A frame that is not masked.
    #[error("the client sent a frame that is not masked")]
    Unmasked,
    /// A bit of an extension, which was not negotiated.
    #[error("the client sent a frame with a reserved bit")]
    Reserved,
    /// A kind of frame that RFC 6455 does not have.
    #[error("the client sent a frame of an unknown kind")]
    Kind,
    /// A ping, pong or close frame in fragments, or longer than [`MAX_CONTROL`].
    #[error(
        "the client sent a control frame of {length} bytes or in fragments; it may have {MAX_CONTROL} bytes and no fragments"
    )]
    Control {
        /// Its length.
        length: u64,
    },
    /// A fragment of no message, or a message within another.
    #[error("the client sent fragments of messages in a wrong order")]
    Fragment,
}

impl FrameError {
    /// The code of the close frame that says so.
    pub fn close_code(self) -> u16 {
        match self {
            Self::TooLong { .. } => TOO_BIG,
            _ => PROTOCOL_ERROR,
        }
    }
}

/// Reads the frames of a client. It does no I/O, and keeps nothing but the head of the present frame.
#[derive(Debug)]
pub struct Decoder {
    limit: Option<u64>,
    frame: Option<Frame>,
    /// The next bytes begin a message.
    first: bool,
    /// The present message has more frames.
    open: bool,
    /// The present message is text.
    text: bool,
}

/// The present data frame.
#[derive(Debug)]
struct Frame {
    left: u64,
    mask: [u8; 4],
    ends_message: bool,
}

impl Decoder {
    /// Takes frames of at most so many bytes; `None` takes all.
    pub fn new(limit: Option<u64>) -> Self {
        Self {
            limit,
            frame: None,
            first: true,
            open: false,
            text: false,
        }
    }

    /// Takes the next piece off the front of `input`. `None` if it needs more bytes: at most the 14 of a head, or a control frame.
    ///
    /// After [`FrameError::TooLong`] it may go on: the bytes of the frame come as pieces, to be thrown away.
    ///
    /// # Errors
    ///
    /// If the bytes are not frames of a client, or a frame is too long.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Piece>, FrameError> {
        loop {
            if let Some(frame) = &mut self.frame {
                if frame.left > 0 && input.is_empty() {
                    return Ok(None);
                }
                let data = frame.take(input);
                let ends_frame = frame.left == 0;
                let last = ends_frame && frame.ends_message;
                if ends_frame {
                    self.frame = None;
                }
                if data.is_empty() && !last {
                    continue;
                }
                let first = std::mem::replace(&mut self.first, last);
                let text = self.text;
                return Ok(Some(Piece::Data {
                    text,
                    first,
                    last,
                    data,
                }));
            }
            match self.head(input)? {
                Head::Incomplete => return Ok(None),
                Head::Control(piece) => return Ok(Some(piece)),
                Head::Data => {}
            }
        }
    }

    /// Takes the head of a frame, or a whole control frame.
    fn head(&mut self, input: &mut BytesMut) -> Result<Head, FrameError> {
        let mut cursor = Cursor::new(&input[..]);
        let Some((head, length)) = FrameHeader::parse(&mut cursor).map_err(|_| FrameError::Kind)? else {
            return Ok(Head::Incomplete);
        };
        let begin = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        let Some(mask) = head.mask else {
            return Err(FrameError::Unmasked);
        };
        if head.rsv1 || head.rsv2 || head.rsv3 {
            return Err(FrameError::Reserved);
        }
        let mut frame = Frame {
            left: length,
            mask,
            ends_message: head.is_final,
        };
        match head.opcode {
            OpCode::Control(kind) => {
                if length > MAX_CONTROL || !head.is_final {
                    return Err(FrameError::Control { length });
                }
                if ((input.len() - begin) as u64) < length {
                    return Ok(Head::Incomplete);
                }
                input.advance(begin);
                let payload = frame.take(input);
                Ok(Head::Control(match kind {
                    Control::Ping => Piece::Ping(payload),
                    Control::Close => Piece::Close(
                        payload
                            .get(..2)
                            .map(|code| u16::from_be_bytes([code[0], code[1]])),
                    ),
                    _ => Piece::Pong,
                }))
            }
            OpCode::Data(kind) => {
                if self.open != (kind == Data::Continue) {
                    return Err(FrameError::Fragment);
                }
                input.advance(begin);
                self.open = !head.is_final;
                if kind != Data::Continue {
                    self.text = kind == Data::Text;
                }
                self.frame = Some(frame);
                match self.limit {
                    Some(limit) if length > limit => Err(FrameError::TooLong { length, limit }),
                    _ => Ok(Head::Data),
                }
            }
        }
    }
}

enum Head {
    Incomplete,
    Control(Piece),
    Data,
}

impl Frame {
    /// Takes what is there of the payload.
    fn take(&mut self, input: &mut BytesMut) -> Bytes {
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        let mut data = input.split_to(length);
        self.left -= length as u64;
        let [a, b, c, d] = self.mask;
        let mask = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let (words, rest) = data.as_chunks_mut();
        for word in words {
            *word = (u64::from_ne_bytes(*word) ^ mask).to_ne_bytes();
        }
        rest.iter_mut()
            .zip(self.mask.iter().cycle())
            .for_each(|(byte, mask)| *byte ^= mask);
        self.mask.rotate_left(length % 4);
        data.freeze()
    }
}
