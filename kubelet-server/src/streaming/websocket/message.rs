//! One message: a channel and its bytes.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use bytes::{Buf as _, Bytes};

/// In `v5.channel.k8s.io`, the channel whose message ends another channel.
pub const CLOSE: u8 = 255;

/// Reads base64 as Go does: unused bits of the last byte may be set.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// How a protocol writes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// A binary message: the channel's number, then the bytes.
    Binary,
    /// As [`Binary`](Self::Binary), and a message on channel 255 ends the channel that it names.
    BinaryWithClose,
    /// A text message: the channel's number as a character from `0`, then the bytes in base64.
    Base64,
}

/// What a received message, or a piece of one, says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes of a channel.
    Data {
        /// The channel. It may be one that does not exist.
        channel: u8,
        /// The bytes.
        data: Bytes,
    },
    /// The client sends nothing more on a channel.
    Close {
        /// The channel.
        channel: u8,
    },
    /// An empty message, or a piece without a meaning of its own.
    Nothing,
}

/// Why a message is not one of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The signal that ends a channel names no channel, or more than one.
    #[error("a single channel byte should follow the stream close signal")]
    CloseSignal,
    /// The bytes are not base64.
    #[error("message on channel {channel} is not base64")]
    Base64 {
        /// The channel.
        channel: u8,
    },
}

impl Codec {
    /// The one of a WebSocket protocol.
    pub(crate) fn of(protocol: &str) -> Self {
        match protocol {
            "base64.channel.k8s.io" | "v4.base64.channel.k8s.io" => Self::Base64,
            "v5.channel.k8s.io" => Self::BinaryWithClose,
            _ => Self::Binary,
        }
    }

    /// Reads a whole message, which may be text or binary.
    ///
    /// # Errors
    ///
    /// If it is not one of the protocol.
    pub fn read(self, message: &[u8]) -> Result<Received, MessageError> {
        MessageReader::new(self).read(true, true, Bytes::copy_from_slice(message))
    }

    /// Writes a message.
    pub fn write(self, channel: u8, data: &[u8]) -> Vec<u8> {
        match self {
            Self::Binary | Self::BinaryWithClose => {
                let mut message = Vec::with_capacity(1 + data.len());
                message.push(channel);
                message.extend_from_slice(data);
                message
            }
            Self::Base64 => {
                let mut message = String::with_capacity(1 + data.len().div_ceil(3) * 4);
                message.push(char::from(b'0'.wrapping_add(channel) & 0x7f));
                STANDARD.encode_string(data, &mut message);
                message.into_bytes()
            }
        }
    }
}

/// Reads messages that come in pieces. It keeps at most three bytes of a message.
#[derive(Debug)]
pub struct MessageReader {
    codec: Codec,
    present: Present,
}

/// What is known of the present message.
#[derive(Debug)]
enum Present {
    /// Not even its channel.
    Begins,
    Data {
        channel: u8,
        base64: Base64,
    },
    /// It ends a channel, perhaps this one.
    Close(Option<u8>),
    /// The rest is thrown away.
    Broken,
}

impl MessageReader {
    /// At the beginning of a message.
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            present: Present::Begins,
        }
    }

    /// Reads a piece of a message: `first` begins a message, `last` ends it.
    ///
    /// # Errors
    ///
    /// If the message is not one of the protocol. What came of it before was handed out, what is still to come is
    /// [`Received::Nothing`].
    pub fn read(&mut self, first: bool, last: bool, mut piece: Bytes) -> Result<Received, MessageError> {
        if first {
            self.present = Present::Begins;
        }
        if matches!(self.present, Present::Begins) {
            if piece.is_empty() {
                return Ok(Received::Nothing);
            }
            let channel = piece.get_u8();
            self.present = match self.codec {
                Codec::BinaryWithClose if channel == CLOSE => Present::Close(None),
                Codec::Binary | Codec::BinaryWithClose => Present::Data {
                    channel,
                    base64: Base64::default(),
                },
                Codec::Base64 => Present::Data {
                    channel: channel.wrapping_sub(b'0'),
                    base64: Base64::default(),
                },
            };
        }
        let read = match &mut self.present {
            Present::Data { channel, .. } if self.codec != Codec::Base64 => Ok(Received::Data {
                channel: *channel,
                data: piece,
            }),
            Present::Data { channel, base64 } => {
                let channel = *channel;
                match base64.decode(last, &piece) {
                    Some(data) => Ok(Received::Data { channel, data }),
                    None => Err(MessageError::Base64 { channel }),
                }
            }
            Present::Close(channel) => match (&channel, &piece[..]) {
                (_, []) => Ok(()),
                (None, [named]) => {
                    *channel = Some(*named);
                    Ok(())
                }
                _ => Err(MessageError::CloseSignal),
            }
            .and_then(|()| match (last, *channel) {
                (true, Some(channel)) => Ok(Received::Close { channel }),
                (true, None) => Err(MessageError::CloseSignal),
                (false, _) => Ok(Received::Nothing),
            }),
            Present::Begins | Present::Broken => Ok(Received::Nothing),
        };
        if read.is_err() {
            self.present = Present::Broken;
        }
        read
    }
}

/// Base64 in pieces, with line ends that mean nothing.
#[derive(Debug, Default)]
struct Base64 {
    /// Fewer than four characters that are not decoded yet.
    rest: Vec<u8>,
    /// After `=` nothing more may come.
    padded: bool,
}

impl Base64 {
    /// `None` if it is not base64.
    fn decode(&mut self, last: bool, piece: &[u8]) -> Option<Bytes> {
        let mut text = std::mem::take(&mut self.rest);
        text.extend(piece.iter().filter(|byte| !matches!(byte, b'\r' | b'\n')));
        let whole = if last { text.len() } else { text.len() / 4 * 4 };
        self.rest = text.split_off(whole);
        if text.is_empty() {
            return Some(Bytes::new());
        }
        if self.padded {
            return None;
        }
        self.padded = text.ends_with(b"=");
        LENIENT.decode(&text).ok().map(Bytes::from)
    }
}
