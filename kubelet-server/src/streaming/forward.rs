//! Forwards ports of a pod (`portforward`).

mod copy;
mod spdy;
mod websocket;

use futures::FutureExt;
use http::{Request, StatusCode};
use kubelet_core::runtime::streaming::{PortForwarder, StreamError};
use tracing::debug;

use super::answer::Answer;
use super::command::StreamTimeouts;
use super::negotiate;
use crate::upgrade::is_websocket;

const SPDY_PROTOCOLS: [&str; 1] = ["portforward.k8s.io"];
const WEBSOCKET_PROTOCOLS: [&str; 3] = ["", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"];
/// Two channels a port, whose numbers are bytes; 255 means something else.
const MAX_PORTS: usize = 127;

/// Answers a client's request for ports of a pod, over SPDY or WebSocket. The request must be one that a hyper server received.
///
/// Over WebSocket, `ports` are the ports. Over SPDY, the client names the port of each connection; `ports` does not matter,
/// as in the reference.
pub fn serve_port_forward<B>(
    mut request: Request<B>,
    ports: &[u16],
    forwarder: Box<dyn PortForwarder>,
    timeouts: StreamTimeouts,
) -> Answer {
    let websocket = is_websocket(request.headers());
    if websocket && ports.len() > MAX_PORTS {
        return Answer::error(StatusCode::BAD_REQUEST, format!("more than {MAX_PORTS} ports"));
    }
    let chosen = if websocket {
        negotiate::websocket(&request, &WEBSOCKET_PROTOCOLS)
    } else {
        negotiate::spdy(&request, &SPDY_PROTOCOLS)
    };
    let (protocol, response) = match chosen {
        Ok(chosen) => chosen,
        Err(response) => return Answer::refused(*response),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let ports = ports.to_vec();
    let session = async move {
        let io = match upgrade.await {
            Ok(io) => hyper_util::rt::TokioIo::new(io),
            Err(error) => return debug!(%error, "the client is gone before its ports were forwarded"),
        };
        if websocket {
            websocket::serve(io, protocol, &ports, &*forwarder, timeouts).await;
        } else {
            spdy::serve(io, &*forwarder, timeouts).await;
        }
    };
    Answer {
        response,
        session: Some(session.boxed()),
    }
}

/// The message for the client about a port that could not be forwarded.
fn failure(forwarder: &dyn PortForwarder, port: u16, error: &StreamError) -> String {
    match forwarder.pod() {
        "" => format!("error forwarding port {port}: {error}"),
        pod => format!("error forwarding port {port} to pod {pod}, uid : {error}"),
    }
}
