//! Streams: recorded sessions of the reference, replayed against our own server, and what the recordings do not have.

mod codec;
mod frames;
mod large;
mod log;
mod replay;
mod runtime;
mod server;
mod session;
mod translate;
