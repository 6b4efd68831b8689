//! SPDY/3.1, as far as Kubernetes uses it.
//!
//! - [`frame`]: the frames, and their limits.
//! - [`headers`]: header blocks. Each direction of a connection has one running zlib stream.
//! - [`codec`]: frames from bytes, and bytes from frames. It does no I/O.
//! - [`connection`]: the streams of a connection.

pub mod codec;
pub mod connection;
pub mod frame;
pub mod headers;
mod state;
mod stream;

pub use codec::{Decoder, Encoder};
pub use connection::{Connection, Handle};
pub use frame::{Frame, SpdyError};
pub use headers::Headers;
pub use stream::Stream;
