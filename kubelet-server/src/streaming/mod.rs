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
//!
//! This runtime offers a command to the server, and gets the URL that it returns to the node's server:
//!
//! ```
//! use kubelet_core::runtime::streaming::{
//!     ClientStreams, CommandKind, RemoteCommand, StreamError, StreamOptions, StreamingServer as _,
//! };
//! use kubelet_server::streaming::{StreamServer, StreamServerOptions};
//! use tokio::io::AsyncWriteExt as _;
//!
//! /// A command that prints its arguments.
//! struct Echo(Vec<String>);
//!
//! #[async_trait::async_trait]
//! impl RemoteCommand for Echo {
//!     async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
//!         if let Some(mut stdout) = streams.stdout {
//!             stdout.write_all(self.0.join(" ").as_bytes()).await.map_err(StreamError::other)?;
//!         }
//!         Ok(0)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = StreamServer::bind(StreamServerOptions::default()).await?;
//! let (streams, shutdown) = (server.handle(), tokio_util::sync::CancellationToken::new());
//! let serving = tokio::spawn(server.run(shutdown.clone()));
//!
//! // In `StreamingRuntime::exec_url` of the runtime:
//! let options = StreamOptions { stdout: true, ..StreamOptions::default() };
//! let url = streams.offer_command(CommandKind::Exec, options, Box::new(Echo(vec!["hello".into()])))?;
//! assert!(url.starts_with("http://127.0.0.1:") && url.contains("/exec/"), "{url}");
//! # shutdown.cancel();
//! # serving.await?;
//! # Ok(())
//! # }
//! ```
//!
//! Whoever has a URL runs its command. So the server listens on the loopback address by default, a URL is for one client, and it
//! expires after a minute.

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
pub use negotiate::{wants_close_signal, wants_tunnel};
pub use proxy::proxy_upgrade;
pub use server::{StreamServer, StreamServerHandle, StreamServerOptions};
pub use translate::serve_translated;
pub use tunnel::serve_tunnel;

pub use crate::upgrade::{is_upgrade, is_websocket};
