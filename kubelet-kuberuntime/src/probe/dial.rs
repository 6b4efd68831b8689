//! Connects to containers. Errors have the texts of Go's `net`, which users know from events.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

/// `host:port`, with brackets around an IPv6 address (`net.JoinHostPort`).
pub(crate) fn join_host_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Connects; the error is Go's, e.g. `dial tcp 10.0.0.1:80: connect: connection refused`. As in Go, an empty host is
/// this machine.
pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = match (host, host.parse::<IpAddr>()) {
        ("", _) => vec![SocketAddr::from(([127, 0, 0, 1], port))],
        (_, Ok(address)) => vec![SocketAddr::from((address, port))],
        (_, Err(_)) => {
            let found = tokio::net::lookup_host((host, port)).await;
            let found: Vec<SocketAddr> = found.map(Iterator::collect).unwrap_or_default();
            if found.is_empty() {
                return Err(format!("dial tcp: lookup {host}: no such host"));
            }
            found
        }
    };
    let mut first = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                let shown = if host.is_empty() {
                    format!(":{port}")
                } else {
                    address.to_string()
                };
                first.get_or_insert(format!("dial tcp {shown}: connect: {}", os_error(&error)));
            }
        }
    }
    Err(first.unwrap_or_default())
}

/// The operating system's message, without Rust's additions and in lower case as in Go.
pub(crate) fn os_error(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_lowercase(),
        None => text,
    }
}
