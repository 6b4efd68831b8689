//! Client and server through a real unix socket.

#![allow(clippy::unwrap_used, clippy::panic)]

mod all_calls;
mod calls;
mod connection;
mod failures;
mod listed;
mod sample;
mod streams;
mod toy;
