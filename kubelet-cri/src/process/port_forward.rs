//! Connects to the ports of pods, which are the host's.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::net::TcpStream;

use crate::verbs::{ByteStream, Result, RuntimeError};

/// Tries IPv4 and then IPv6, as containerd does.
pub(super) async fn connect(port: u16) -> Result<Box<dyn ByteStream>> {
    let stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => stream,
        Err(v4) => TcpStream::connect((Ipv6Addr::LOCALHOST, port))
            .await
            .map_err(|v6| {
                let message = format!("failed to connect to localhost:{port}, IPv4: {v4}, IPv6: {v6}");
                RuntimeError::transient("", message)
            })?,
    };
    // The client decides what goes into one packet.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    Ok(Box::new(stream))
}
