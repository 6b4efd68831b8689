//! [`NodeDialer`]: connections to nodes that need no network.

use std::fmt;
use std::io;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection to the server of a node, on which HTTP/1.1 is spoken.
pub trait NodeStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> NodeStream for S {}

/// Connects to the servers of nodes (`Dialer.DialContext`), for nodes in the same process or behind a tunnel.
#[async_trait]
pub trait NodeDialer: fmt::Debug + Send + Sync + 'static {
    /// Opens a connection to the server of a node. There is no TLS on it: whoever answers must know that only the API server
    /// can connect.
    ///
    /// # Errors
    ///
    /// The node cannot be reached. The client gets this error.
    async fn dial(&self, node: &str) -> io::Result<Box<dyn NodeStream>>;
}
