//! The frames of SPDY/3.1.

use bytes::Bytes;

use super::headers::Headers;

/// The longest payload of a control frame. Kubernetes sends less than 200 bytes.
pub const MAX_CONTROL_LENGTH: usize = 64 << 10;

/// A longer data frame is read in pieces of this length, so that it need not fit into memory.
pub const MAX_DATA_PIECE: usize = 64 << 10;

/// The window of a stream and of a connection, before anybody changes it.
pub const INITIAL_WINDOW: u32 = 64 << 10;

/// `RST_STREAM`: the stream broke the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// `RST_STREAM`: the stream was refused before anything was done.
pub const REFUSED_STREAM: u32 = 3;
/// `RST_STREAM`: the stream is no longer needed.
pub const CANCEL: u32 = 5;

/// The setting that changes the initial window of streams.
pub const SETTING_INITIAL_WINDOW: u32 = 7;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream.
    SynStream {
        /// The id of the new stream. A client's are odd.
        stream: u32,
        /// The stream it belongs to, or 0.
        associated: u32,
        /// 0 (highest) to 7.
        priority: u8,
        /// The slot of the client's certificate.
        slot: u8,
        /// The sender sends nothing on it.
        fin: bool,
        /// The receiver sends nothing on it.
        unidirectional: bool,
        /// Its headers.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// The stream.
        stream: u32,
        /// The sender sends nothing more on it.
        fin: bool,
        /// Its headers.
        headers: Headers,
    },
    /// Ends a stream in both directions.
    RstStream {
        /// The stream.
        stream: u32,
        /// Why.
        status: u32,
    },
    /// Settings of the sender.
    Settings {
        /// Whether settings that were persisted are to be forgotten.
        clear: bool,
        /// Flags, id and value.
        entries: Vec<(u8, u32, u32)>,
    },
    /// Asks for an answer with the same id.
    Ping {
        /// A client's are odd.
        id: u32,
    },
    /// The sender accepts no more streams.
    GoAway {
        /// The last stream that was accepted.
        last: u32,
        /// Why.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// The stream.
        stream: u32,
        /// The sender sends nothing more on it.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// The receiver may send more bytes.
    WindowUpdate {
        /// The stream, or 0 for the connection.
        stream: u32,
        /// How many more.
        delta: u32,
    },
    /// Bytes of a stream.
    Data {
        /// The stream.
        stream: u32,
        /// The sender sends nothing more on it.
        fin: bool,
        /// The bytes.
        data: Bytes,
    },
}

/// Why bytes are not SPDY/3.1 as Kubernetes uses it. After each of these the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpdyError {
    /// Not version 3.
    #[error("{frame} frame of SPDY version {version}; only version 3 is supported")]
    Version {
        /// The frame.
        frame: &'static str,
        /// Its version.
        version: u16,
    },
    /// A control frame that SPDY/3.1 does not have.
    #[error("control frame of unknown type {0}")]
    UnknownFrame(u16),
    /// A control frame beyond [`MAX_CONTROL_LENGTH`].
    #[error("{frame} frame of {length} bytes is too long; the limit is {MAX_CONTROL_LENGTH}")]
    TooLong {
        /// The frame.
        frame: &'static str,
        /// Its length.
        length: usize,
    },
    /// The payload has a length that its type does not allow.
    #[error("{frame} frame of {length} bytes has a wrong length")]
    Length {
        /// The frame.
        frame: &'static str,
        /// Its length.
        length: usize,
    },
    /// A flag that its type does not have.
    #[error("{frame} frame has unknown flags {flags:#04x}")]
    Flags {
        /// The frame.
        frame: &'static str,
        /// Its flags.
        flags: u8,
    },
    /// A frame of a stream names no stream.
    #[error("{frame} frame has the id 0")]
    ZeroId {
        /// The frame.
        frame: &'static str,
    },
    /// A reset without a reason.
    #[error("RST_STREAM frame has the status 0")]
    ZeroStatus,
    /// The header block of a frame is wrong.
    #[error("header block of {frame} frame: {reason}")]
    HeaderBlock {
        /// The frame.
        frame: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
    /// The peer makes us answer, and does not read the answers.
    #[error("the peer does not read the answers to its frames")]
    Flood,
    /// A window grew beyond 2^31-1 bytes.
    #[error("WINDOW_UPDATE frame makes a window larger than 2^31-1 bytes")]
    Window,
    /// Reading or writing failed.
    #[error("connection failed: {0}")]
    Io(std::io::ErrorKind),
    /// No frame came or went for the idle timeout.
    #[error("the connection was idle for too long")]
    Idle,
}

impl From<std::io::Error> for SpdyError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.kind())
    }
}
