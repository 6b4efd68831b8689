//! Ports over SPDY: each connection of the client is a pair of streams, one for its bytes and one for an error.

use std::collections::HashMap;
use std::future::pending;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kubelet_core::runtime::streaming::PortForwarder;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::super::command::StreamTimeouts;
use super::super::spdy::{Connection, Handle, Stream};
use super::copy::to_end;

/// A pair of which one stream is missing.
struct Half {
    stream: Stream,
    is_error: bool,
    until: Instant,
}

pub(super) async fn serve<T: AsyncRead + AsyncWrite>(
    io: T,
    forwarder: &dyn PortForwarder,
    timeouts: StreamTimeouts,
) {
    let (connection, handle) = Connection::server(io);
    let connection = connection.idle_timeout(timeouts.idle);
    tokio::select! {
        result = connection.run() => if let Err(error) = result {
            debug!(%error, "the forwarding of ports ended early");
        },
        () = forward_all(&handle, forwarder, timeouts) => {}
    }
}

/// Forwards each pair, until the connection is gone.
async fn forward_all(handle: &Handle, forwarder: &dyn PortForwarder, timeouts: StreamTimeouts) {
    let mut halves: HashMap<String, Half> = HashMap::new();
    let mut running = FuturesUnordered::new();
    loop {
        let next = halves.values().map(|half| half.until).min();
        let expiry = async {
            match next {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        let stream = tokio::select! {
            stream = handle.accept() => stream,
            Some(()) = running.next() => continue,
            () = expiry => {
                expire(&mut halves).await;
                continue;
            }
        };
        let Some(stream) = stream else {
            return pending().await;
        };
        let Some((port, is_error)) = check(&stream) else {
            stream.reset();
            continue;
        };
        stream.reply();
        let request = request_id(&stream, is_error);
        match halves.remove(&request) {
            None => {
                let until = Instant::now() + timeouts.creation;
                halves.insert(
                    request,
                    Half {
                        stream,
                        is_error,
                        until,
                    },
                );
            }
            Some(half) if half.is_error == is_error => {
                let kind = if is_error { "error" } else { "data" };
                let message =
                    format!("error processing stream for request {request}: {kind} stream already assigned");
                if is_error {
                    let mut first = half.stream;
                    let _ = first.write_all(message.as_bytes()).await;
                    halves.insert(
                        request,
                        Half {
                            stream: first,
                            is_error,
                            until: half.until,
                        },
                    );
                } else {
                    halves.insert(request, half);
                }
                stream.reset();
            }
            Some(half) => {
                let (data, error) = if is_error {
                    (half.stream, stream)
                } else {
                    (stream, half.stream)
                };
                // The data stream names the port.
                let port = check(&data).map_or(port, |(port, _)| port);
                running.push(forward(port, data, error, forwarder));
            }
        }
    }
}

/// The port of a stream, and whether it is for an error. `None` if its headers are wrong.
fn check(stream: &Stream) -> Option<(u16, bool)> {
    let port = stream
        .headers()
        .get("port")?
        .parse()
        .ok()
        .filter(|port| *port > 0)?;
    match stream.headers().get("streamType")? {
        "error" => Some((port, true)),
        "data" => Some((port, false)),
        _ => None,
    }
}

/// Clients older than the header open an error stream and then its data stream.
fn request_id(stream: &Stream, is_error: bool) -> String {
    match stream.headers().get("requestID") {
        Some(id) => id.to_owned(),
        None if is_error => stream.id().to_string(),
        None => stream.id().wrapping_sub(2).to_string(),
    }
}

async fn expire(halves: &mut HashMap<String, Half>) {
    let now = Instant::now();
    for (request, mut half) in halves.extract_if(|_, half| half.until <= now) {
        debug!(request, "timed out waiting for streams");
        if half.is_error {
            let message = format!("(request={request}) timed out waiting for streams");
            let _ = half.stream.write_all(message.as_bytes()).await;
        }
        half.stream.reset();
    }
}

async fn forward(port: u16, mut data: Stream, mut error: Stream, forwarder: &dyn PortForwarder) {
    match forwarder.connect(port).await {
        Ok(pod) => {
            let (pod_reader, pod_writer) = tokio::io::split(pod);
            let (client_reader, client_writer) = tokio::io::split(data);
            // An end of one direction leaves the other open. A failure of one leaves what is on its way in the other.
            let (up, down) = tokio::join!(
                to_end(client_reader, pod_writer),
                to_end(pod_reader, client_writer)
            );
            for failed in [up, down].into_iter().filter_map(Result::err) {
                debug!(port, error = %failed, "a forwarded connection broke");
            }
        }
        Err(failed) => {
            let _ = data.shutdown().await;
            let message = super::failure(forwarder, port, &failed);
            let _ = error.write_all(message.as_bytes()).await;
        }
    }
    let _ = error.shutdown().await;
}
