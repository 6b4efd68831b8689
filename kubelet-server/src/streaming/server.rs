//! The server behind the URLs that a runtime hands out.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::body::{self, Body};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kubelet_core::runtime::streaming::{
    CommandKind, PortForwarder, RemoteCommand, StreamError, StreamErrorKind, StreamOptions, StreamingServer,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info_span, warn};

use super::answer::{Answer, text_error};
use super::command::{StreamTimeouts, serve_command};
use super::forward::serve_port_forward;
use super::offers::{Offers, Refused};
use crate::server::{MAX_HEAD, MAX_HEADERS};

/// So long a client may take to send the head of its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// So many clients may be connected.
const MAX_CONNECTIONS: usize = 4096;

/// Where a [`StreamServer`] listens, and how long it waits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StreamServerOptions {
    /// The address. By default a free port of `127.0.0.1`: only the node's own server is to reach it.
    pub address: SocketAddr,
    /// How long it waits.
    pub timeouts: StreamTimeouts,
}

impl Default for StreamServerOptions {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            timeouts: StreamTimeouts::default(),
        }
    }
}

enum Offer {
    Command {
        kind: CommandKind,
        streams: StreamOptions,
        command: Box<dyn RemoteCommand>,
    },
    PortForward {
        ports: Vec<u16>,
        forwarder: Box<dyn PortForwarder>,
    },
}

/// Serves the streams of a runtime over HTTP, at URLs that hold a token (`streaming.Server` of `k8s.io/cri-streaming`). A token
/// is for one client and lasts a minute.
pub struct StreamServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    timeouts: StreamTimeouts,
    offers: Offers<Offer>,
}

/// Takes the offers of a runtime for a [`StreamServer`], and returns their URLs. Clones are for the same server.
#[derive(Clone)]
pub struct StreamServerHandle {
    shared: Arc<Shared>,
}

impl StreamServer {
    /// Binds the address. Clients are served while [`run`](Self::run) runs.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn bind(options: StreamServerOptions) -> std::io::Result<Self> {
        let listener = TcpListener::bind(options.address).await?;
        let address = listener.local_addr()?;
        let shared = Shared {
            address,
            timeouts: options.timeouts,
            offers: Offers::new(),
        };
        Ok(Self {
            listener,
            shared: Arc::new(shared),
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The handle through which a runtime makes its offers.
    pub fn handle(&self) -> StreamServerHandle {
        StreamServerHandle {
            shared: self.shared.clone(),
        }
    }

    /// Serves clients until `shutdown`. Then all streams end.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Then no new client is served. Open streams go on until they end, or until
    /// `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let tasks = TaskTracker::new();
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Some(accepted) = shutdown.run_until_cancelled(self.listener.accept()).await {
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    warn!(%error, "accepting a client of streams failed");
                    // Without free file descriptors, accepting fails at once again.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                debug!("too many clients of streams");
                continue;
            };
            let serve = serve(socket, self.shared.clone());
            let shutdown = shutdown.clone();
            tasks.spawn(async move {
                let _place = place;
                shutdown.run_until_cancelled(serve).await;
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

/// One client: its request, and then the streams.
async fn serve(socket: TcpStream, shared: Arc<Shared>) {
    let _ = socket.set_nodelay(true);
    let session = parking_lot::Mutex::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(request, &shared);
        *session.lock() = answer.session;
        std::future::ready(Ok::<_, Infallible>(answer.response))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .auto_date_header(false)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        debug!(%error, "the connection of a client of streams failed");
    }
    let session = session.lock().take();
    if let Some(session) = session {
        session.await;
    }
}

fn answer(request: Request<Incoming>, shared: &Shared) -> Answer {
    let not_found = || Answer::error(StatusCode::NOT_FOUND, "404 page not found");
    let path = request.uri().path().to_owned();
    let Some((verb, token)) = path.strip_prefix('/').and_then(|p| p.split_once('/')) else {
        return Answer::refused(plain(StatusCode::NOT_FOUND, "404: Page Not Found"));
    };
    if !["exec", "attach", "portforward"].contains(&verb) || token.is_empty() || token.contains('/') {
        return Answer::refused(plain(StatusCode::NOT_FOUND, "404: Page Not Found"));
    }
    if ![Method::GET, Method::POST].contains(request.method()) {
        return Answer::refused(plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"));
    }
    match (verb, shared.offers.take(token)) {
        (
            "exec",
            Some(Offer::Command {
                kind: kind @ CommandKind::Exec,
                streams,
                command,
            }),
        )
        | (
            "attach",
            Some(Offer::Command {
                kind: kind @ CommandKind::Attach,
                streams,
                command,
            }),
        ) => {
            let span = info_span!("command", command = ?command.command());
            let answer = serve_command(request, kind, streams, command, shared.timeouts);
            answer.within(span)
        }
        ("portforward", Some(Offer::PortForward { ports, forwarder })) => {
            let span = info_span!("portforward", pod = forwarder.pod());
            let answer = serve_port_forward(request, &ports, forwarder, shared.timeouts);
            answer.within(span)
        }
        _ => not_found(),
    }
}

/// A response as the router of the reference writes it, without a line end.
fn plain(status: StatusCode, message: &'static str) -> Response<Body> {
    let mut response = text_error(status, "");
    *response.body_mut() = body::full(message);
    response
}

impl StreamServerHandle {
    fn offer(&self, verb: &str, offer: Offer) -> Result<String, StreamError> {
        let token = self
            .shared
            .offers
            .insert(offer)
            .map_err(|refused| match refused {
                Refused::TooMany => StreamError::new(
                    StreamErrorKind::ResourceExhausted,
                    "maximum number of in-flight requests exceeded",
                ),
                Refused::NoRandom(error) => StreamError::other(format!("make a token: {error}")),
            })?;
        Ok(format!("http://{}/{verb}/{token}", self.shared.address))
    }
}

impl StreamingServer for StreamServerHandle {
    fn offer_command(
        &self,
        kind: CommandKind,
        streams: StreamOptions,
        command: Box<dyn RemoteCommand>,
    ) -> Result<String, StreamError> {
        let invalid = |message: &str| Err(StreamError::new(StreamErrorKind::InvalidArgument, message));
        if streams.tty && streams.stderr {
            return invalid("tty and stderr cannot both be true");
        }
        if !streams.stdin && !streams.stdout && !streams.stderr {
            return invalid("one of stdin, stdout, or stderr must be set");
        }
        let verb = match kind {
            CommandKind::Exec => "exec",
            CommandKind::Attach => "attach",
        };
        self.offer(
            verb,
            Offer::Command {
                kind,
                streams,
                command,
            },
        )
    }

    fn offer_port_forward(
        &self,
        ports: &[u16],
        forwarder: Box<dyn PortForwarder>,
    ) -> Result<String, StreamError> {
        self.offer(
            "portforward",
            Offer::PortForward {
                ports: ports.to_vec(),
                forwarder,
            },
        )
    }
}
