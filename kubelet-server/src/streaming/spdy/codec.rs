//! Frames from bytes, and bytes from frames. It does no I/O, never panics, and needs no more memory than its limits.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::{Frame, MAX_CONTROL_LENGTH, MAX_DATA_PIECE, SpdyError};
use super::headers::{Compressor, Decompressor, Headers};

const HEAD: usize = 8;
const CONTROL: u32 = 1 << 31;
const ID: u32 = CONTROL - 1;
const FIN: u8 = 1;
const UNIDIRECTIONAL: u8 = 2;

/// The frames that a peer sends.
pub struct Decoder {
    headers: Decompressor,
    /// The rest of a long data frame: stream, whether it is the last, bytes to come.
    rest: Option<(u32, bool, usize)>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// At the start of a connection.
    pub fn new() -> Self {
        Self {
            headers: Decompressor::new(),
            rest: None,
        }
    }

    /// Takes the next frame from the front of `input`. `None` if more bytes are needed.
    ///
    /// A data frame longer than [`MAX_DATA_PIECE`] comes in pieces of that length; only the last has `fin`.
    ///
    /// # Errors
    ///
    /// If it is not a frame of SPDY/3.1. The decoder is of no more use then.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
        if let Some((stream, fin, left)) = self.rest {
            return Ok(self.piece(stream, fin, left, input));
        }
        let mut head = &input[..];
        let (Ok(first), Ok(second)) = (head.try_get_u32(), head.try_get_u32()) else {
            return Ok(None);
        };
        let (flags, length) = ((second >> 24) as u8, (second & 0xff_ffff) as usize);
        if first & CONTROL == 0 {
            let frame = "DATA";
            if first == 0 {
                return Err(SpdyError::ZeroId { frame });
            }
            if flags & !FIN != 0 {
                return Err(SpdyError::Flags { frame, flags });
            }
            if length <= MAX_DATA_PIECE && input.len() < HEAD + length {
                input.reserve(HEAD + length - input.len());
                return Ok(None);
            }
            input.advance(HEAD);
            return Ok(self.piece(first, flags & FIN != 0, length, input));
        }
        let kind = Kind::of((first & 0xffff) as u16)?;
        let frame = kind.name();
        let version = (first >> 16 & 0x7fff) as u16;
        if version != 3 {
            return Err(SpdyError::Version { frame, version });
        }
        if length > MAX_CONTROL_LENGTH {
            return Err(SpdyError::TooLong { frame, length });
        }
        if flags & !kind.flags() != 0 {
            return Err(SpdyError::Flags { frame, flags });
        }
        if input.len() < HEAD + length {
            return Ok(None);
        }
        input.advance(HEAD);
        let payload = input.split_to(length);
        self.control(kind, flags, &payload).map(Some)
    }

    fn piece(&mut self, stream: u32, fin: bool, left: usize, input: &mut BytesMut) -> Option<Frame> {
        let length = left.min(MAX_DATA_PIECE);
        self.rest = None;
        if input.len() < length {
            self.rest = Some((stream, fin, left));
            return None;
        }
        let data = input.split_to(length).freeze();
        let left = left - length;
        if left > 0 {
            self.rest = Some((stream, fin, left));
        }
        Some(Frame::Data {
            stream,
            fin: fin && left == 0,
            data,
        })
    }

    fn control(&mut self, kind: Kind, flags: u8, payload: &[u8]) -> Result<Frame, SpdyError> {
        let frame = kind.name();
        let fin = flags & FIN != 0;
        let mut reader = Payload {
            frame,
            length: payload.len(),
            rest: payload,
        };
        let result = match kind {
            Kind::SynStream => {
                let (stream, associated) = (reader.id()?, reader.u32()? & ID);
                let (priority, slot) = (reader.u8()? >> 5, reader.u8()?);
                let headers = self.headers(&mut reader)?;
                let unidirectional = flags & UNIDIRECTIONAL != 0;
                Frame::SynStream {
                    stream,
                    associated,
                    priority,
                    slot,
                    fin,
                    unidirectional,
                    headers,
                }
            }
            Kind::SynReply => Frame::SynReply {
                stream: reader.id()?,
                fin,
                headers: self.headers(&mut reader)?,
            },
            Kind::Headers => Frame::Headers {
                stream: reader.id()?,
                fin,
                headers: self.headers(&mut reader)?,
            },
            Kind::RstStream => {
                let (stream, status) = (reader.id()?, reader.u32()?);
                if status == 0 {
                    return Err(SpdyError::ZeroStatus);
                }
                Frame::RstStream { stream, status }
            }
            Kind::Settings => {
                let count = reader.u32()? as usize;
                if reader.rest.len() != count.saturating_mul(8) {
                    return Err(reader.wrong_length());
                }
                let mut entries = Vec::with_capacity(count);
                for _ in 0..count {
                    let (id, value) = (reader.u32()?, reader.u32()?);
                    entries.push(((id >> 24) as u8, id & 0xff_ffff, value));
                }
                Frame::Settings { clear: fin, entries }
            }
            Kind::Ping => match reader.u32()? {
                0 => return Err(SpdyError::ZeroId { frame }),
                id => Frame::Ping { id },
            },
            Kind::GoAway => Frame::GoAway {
                last: reader.u32()? & ID,
                status: reader.u32()?,
            },
            Kind::WindowUpdate => {
                let (stream, delta) = (reader.u32()? & ID, reader.u32()? & ID);
                Frame::WindowUpdate { stream, delta }
            }
        };
        if !reader.rest.is_empty() {
            return Err(reader.wrong_length());
        }
        Ok(result)
    }

    fn headers(&mut self, reader: &mut Payload<'_>) -> Result<Headers, SpdyError> {
        let block = std::mem::take(&mut reader.rest);
        let frame = reader.frame;
        self.headers
            .decompress(block)
            .map_err(|reason| SpdyError::HeaderBlock { frame, reason })
    }
}

/// What is left of a control frame's payload.
struct Payload<'a> {
    frame: &'static str,
    length: usize,
    rest: &'a [u8],
}

impl Payload<'_> {
    fn wrong_length(&self) -> SpdyError {
        SpdyError::Length {
            frame: self.frame,
            length: self.length,
        }
    }

    fn u8(&mut self) -> Result<u8, SpdyError> {
        self.rest.try_get_u8().map_err(|_| self.wrong_length())
    }

    fn u32(&mut self) -> Result<u32, SpdyError> {
        self.rest.try_get_u32().map_err(|_| self.wrong_length())
    }

    fn id(&mut self) -> Result<u32, SpdyError> {
        match self.u32()? & ID {
            0 => Err(SpdyError::ZeroId { frame: self.frame }),
            id => Ok(id),
        }
    }
}

/// The frames that we send.
pub struct Encoder {
    headers: Compressor,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// At the start of a connection.
    pub fn new() -> Self {
        Self {
            headers: Compressor::new(),
        }
    }

    /// Writes a frame to the end of `out`.
    ///
    /// # Errors
    ///
    /// If it is longer than its length field can say.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) -> Result<(), SpdyError> {
        match frame {
            Frame::SynStream {
                stream,
                associated,
                priority,
                slot,
                fin,
                unidirectional,
                headers,
            } => {
                let block = self.block(Kind::SynStream, headers)?;
                let flags = if *unidirectional { UNIDIRECTIONAL } else { 0 };
                head(out, Kind::SynStream, u8::from(*fin) | flags, 10 + block.len())?;
                out.put_u32(*stream);
                out.put_u32(*associated);
                out.put_u8(priority << 5);
                out.put_u8(*slot);
                out.put_slice(&block);
            }
            Frame::SynReply { stream, fin, headers } => {
                self.stream_headers(Kind::SynReply, *stream, *fin, headers, out)?;
            }
            Frame::Headers { stream, fin, headers } => {
                self.stream_headers(Kind::Headers, *stream, *fin, headers, out)?;
            }
            Frame::RstStream { stream, status } => words(out, Kind::RstStream, *stream, *status)?,
            Frame::Settings { clear, entries } => {
                head(out, Kind::Settings, u8::from(*clear), 4 + 8 * entries.len())?;
                out.put_u32(entries.len() as u32);
                for (flags, id, value) in entries {
                    out.put_u32(u32::from(*flags) << 24 | id & 0xff_ffff);
                    out.put_u32(*value);
                }
            }
            Frame::Ping { id } => {
                head(out, Kind::Ping, 0, 4)?;
                out.put_u32(*id);
            }
            Frame::GoAway { last, status } => words(out, Kind::GoAway, *last, *status)?,
            Frame::WindowUpdate { stream, delta } => words(out, Kind::WindowUpdate, *stream, *delta)?,
            Frame::Data { stream, fin, data } => encode_data(*stream, *fin, data, out)?,
        }
        Ok(())
    }

    fn stream_headers(
        &mut self,
        kind: Kind,
        stream: u32,
        fin: bool,
        headers: &Headers,
        out: &mut BytesMut,
    ) -> Result<(), SpdyError> {
        let block = self.block(kind, headers)?;
        head(out, kind, u8::from(fin), 4 + block.len())?;
        out.put_u32(stream);
        out.put_slice(&block);
        Ok(())
    }

    fn block(&mut self, kind: Kind, headers: &Headers) -> Result<Bytes, SpdyError> {
        let frame = kind.name();
        let block = self
            .headers
            .compress(headers)
            .map_err(|reason| SpdyError::HeaderBlock { frame, reason })?;
        Ok(block.into())
    }
}

/// Writes a data frame. It needs no [`Encoder`], for data is not compressed.
pub(super) fn encode_data(stream: u32, fin: bool, data: &[u8], out: &mut BytesMut) -> Result<(), SpdyError> {
    if data.len() > 0xff_ffff {
        return Err(SpdyError::TooLong {
            frame: "DATA",
            length: data.len(),
        });
    }
    out.reserve(HEAD + data.len());
    out.put_u32(stream);
    out.put_u32(u32::from(fin) << 24 | data.len() as u32);
    out.put_slice(data);
    Ok(())
}

fn head(out: &mut BytesMut, kind: Kind, flags: u8, length: usize) -> Result<(), SpdyError> {
    if length > MAX_CONTROL_LENGTH {
        return Err(SpdyError::TooLong {
            frame: kind.name(),
            length,
        });
    }
    out.put_u32(CONTROL | 3 << 16 | kind as u32);
    out.put_u32(u32::from(flags) << 24 | length as u32);
    Ok(())
}

fn words(out: &mut BytesMut, kind: Kind, first: u32, second: u32) -> Result<(), SpdyError> {
    head(out, kind, 0, 8)?;
    out.put_u32(first);
    out.put_u32(second);
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    SynStream = 1,
    SynReply = 2,
    RstStream = 3,
    Settings = 4,
    Ping = 6,
    GoAway = 7,
    Headers = 8,
    WindowUpdate = 9,
}

impl Kind {
    fn of(number: u16) -> Result<Self, SpdyError> {
        Ok(match number {
            1 => Self::SynStream,
            2 => Self::SynReply,
            3 => Self::RstStream,
            4 => Self::Settings,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::Headers,
            9 => Self::WindowUpdate,
            other => return Err(SpdyError::UnknownFrame(other)),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::SynStream => "SYN_STREAM",
            Self::SynReply => "SYN_REPLY",
            Self::RstStream => "RST_STREAM",
            Self::Settings => "SETTINGS",
            Self::Ping => "PING",
            Self::GoAway => "GOAWAY",
            Self::Headers => "HEADERS",
            Self::WindowUpdate => "WINDOW_UPDATE",
        }
    }

    /// The flags that it may have.
    fn flags(self) -> u8 {
        match self {
            Self::SynStream => FIN | UNIDIRECTIONAL,
            Self::SynReply | Self::Headers | Self::Settings => FIN,
            _ => 0,
        }
    }
}
