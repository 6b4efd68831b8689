//! Channels over WebSocket: the first byte of each message names the channel.
//!
//! - [`message`]: messages to channels and back. It does no I/O.
//! - `socket`: the channels of a connection.

pub mod message;
pub(super) mod socket;
