//! Serves a command or an attached container (`remotecommand`).

mod spdy;
mod terminal;
mod websocket;

use std::time::Duration;

use futures::FutureExt;
use http::{Request, StatusCode};
use kubelet_core::runtime::streaming::{CommandKind, RemoteCommand, StreamOptions};
use tracing::debug;

use super::answer::Answer;
use super::negotiate::{self, CHANNEL_V5};
use super::status::failure;
use crate::upgrade::is_websocket;

/// The versions of the protocol over SPDY.
const SPDY_PROTOCOLS: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
/// The versions of the protocol over WebSocket.
const WEBSOCKET_PROTOCOLS: [&str; 6] = [
    "",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    CHANNEL_V5,
];

/// How long a server of streams waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTimeouts {
    /// A connection on which nothing comes or goes for so long is closed (`streamingConnectionIdleTimeout`). Zero means
    /// never.
    pub idle: Duration,
    /// So long a client over SPDY may take to open the streams it asked for.
    pub creation: Duration,
}

impl Default for StreamTimeouts {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(4 * 60 * 60),
            creation: Duration::from_secs(30),
        }
    }
}

/// What runs once the client's connection has another protocol.
struct Session {
    options: StreamOptions,
    command: Box<dyn RemoteCommand>,
    timeouts: StreamTimeouts,
    /// What stands before the runtime's error.
    failure: &'static str,
    protocol: &'static str,
}

/// Answers a client's request for the streams of a command or an attached container, over SPDY or WebSocket. The request must
/// be one that a hyper server received. A request that asks for no protocol of ours is refused.
///
/// The command runs in the answer's session. It is dropped when the client is gone.
pub fn serve_command<B>(
    request: Request<B>,
    kind: CommandKind,
    options: StreamOptions,
    command: Box<dyn RemoteCommand>,
    timeouts: StreamTimeouts,
) -> Answer {
    let protocols = if is_websocket(request.headers()) {
        &WEBSOCKET_PROTOCOLS[..]
    } else {
        &SPDY_PROTOCOLS[..]
    };
    serve(request, options, command, timeouts, failure(kind), protocols)
}

/// As [`serve_command`], with a choice of protocols.
pub(super) fn serve<B>(
    mut request: Request<B>,
    mut options: StreamOptions,
    command: Box<dyn RemoteCommand>,
    timeouts: StreamTimeouts,
    failure: &'static str,
    protocols: &[&'static str],
) -> Answer {
    // With a terminal there is one output.
    options.stderr &= !options.tty;
    if !options.stdin && !options.stdout && !options.stderr {
        return Answer::error(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 of stdin, stdout, stderr",
        );
    }
    let websocket = is_websocket(request.headers());
    let chosen = if websocket {
        negotiate::websocket(&request, protocols)
    } else {
        negotiate::spdy(&request, protocols)
    };
    let (protocol, response) = match chosen {
        Ok(chosen) => chosen,
        Err(response) => return Answer::refused(*response),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let session = Session {
        options,
        command,
        timeouts,
        failure,
        protocol,
    };
    let session = async move {
        let io = match upgrade.await {
            Ok(io) => hyper_util::rt::TokioIo::new(io),
            Err(error) => return debug!(%error, "the client is gone before its streams began"),
        };
        if websocket {
            session.over_websocket(io).await
        } else {
            session.over_spdy(io).await
        }
    };
    Answer {
        response,
        session: Some(session.boxed()),
    }
}
