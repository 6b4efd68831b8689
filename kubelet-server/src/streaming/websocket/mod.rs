//! Channels over WebSocket: the first byte of each message names the channel.
//!
//! - [`frame`]: frames from the bytes of a client. It does no I/O.
//! - [`message`]: messages to channels and back. It does no I/O.
//! - `io`: the frames of a connection.
//! - `socket`: the channels of a connection.
//!
//! A client may send its whole input as one frame: the Python client does. So the payload of a frame is handed on as it arrives, and
//! a connection needs the same memory for 32 MiB as for one byte. Libraries for WebSocket hand out whole messages or whole frames,
//! `tungstenite` and `fastwebsockets` among them. So only the handshake and the heads of frames are `tungstenite`'s; what moves the payload is ours.
//!
//! A client that breaks the protocol gets a close frame that says why. The reference says 1000 (normal closure) whatever happened, and
//! closes the connection while the client still sends, so that the client gets a reset instead.

pub mod frame;
pub(super) mod io;
pub mod message;
pub(super) mod socket;
