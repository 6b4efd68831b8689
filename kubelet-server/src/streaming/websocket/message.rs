//! One message: a channel and its bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// In `v5.channel.k8s.io`, the channel whose message ends another channel.
pub const CLOSE: u8 = 255;

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

/// What a received message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes of a channel.
    Data {
        /// The channel. It may be one that does not exist.
        channel: u8,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The client sends nothing more on a channel.
    Close {
        /// The channel.
        channel: u8,
    },
    /// An empty message.
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

    /// Reads a message, which may be text or binary.
    ///
    /// # Errors
    ///
    /// If it is not one of the protocol.
    pub fn read(self, message: &[u8]) -> Result<Received, MessageError> {
        let Some((&channel, data)) = message.split_first() else {
            return Ok(Received::Nothing);
        };
        match self {
            Self::BinaryWithClose if channel == CLOSE => match data {
                [channel] => Ok(Received::Close { channel: *channel }),
                _ => Err(MessageError::CloseSignal),
            },
            Self::Binary | Self::BinaryWithClose => Ok(Received::Data {
                channel,
                data: data.to_vec(),
            }),
            Self::Base64 => {
                let channel = channel.wrapping_sub(b'0');
                let data = STANDARD
                    .decode(data)
                    .map_err(|_| MessageError::Base64 { channel })?;
                Ok(Received::Data { channel, data })
            }
        }
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
