//! The streams of containers: commands, attached containers, forwarded ports.
//!
//! Clients speak SPDY/3.1 (older ones) or WebSocket (newer ones). There are two ways to serve them:
//!
//! - For a runtime of your own, [`StreamServer`] serves the streams itself. Its [handle](StreamServerHandle) is the
//!   [`StreamingServer`](kubelet_core::runtime::streaming::StreamingServer) with which a runtime makes URLs.
//!   [`serve_command`] and [`serve_port_forward`] do the same inside any hyper server.
//! - A CRI runtime has its own server. [`proxy_upgrade`] hands a client's bytes on to it. [`serve_translated`] and
//!   [`serve_tunnel`] turn the newest WebSocket protocols into the SPDY that runtimes speak.
//!
//! All of them give an [`Answer`]: a response to send, and a session to run.

mod answer;
mod client;
mod command;
mod forward;
mod negotiate;
mod offers;
mod proxy;
mod server;
pub mod spdy;
mod status;
mod translate;
mod tunnel;
pub mod websocket;

pub use answer::{Answer, stream_error_response};
pub use command::{StreamTimeouts, serve_command};
pub use forward::serve_port_forward;
pub use negotiate::{is_upgrade, is_websocket, wants_close_signal, wants_tunnel};
pub use proxy::proxy_upgrade;
pub use server::{StreamServer, StreamServerHandle, StreamServerOptions};
pub use translate::serve_translated;
pub use tunnel::serve_tunnel;
