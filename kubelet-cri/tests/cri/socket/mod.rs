//! Client and server through a real unix socket.

mod all_calls;
mod calls;
mod connection;
mod failures;
mod listed;
mod sample;
mod stream_lists;
mod streams;
mod toy;
