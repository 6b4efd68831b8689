//! Listens on the node's ports.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::server::conn::{http1, http2};
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;
use tower::util::{MapRequest, MapRequestLayer};

use crate::authentication::ClientCertificates;
use crate::idle::Requests;
use crate::{Authentication, BoxError, Error, NodeApi, Sessions, TlsSettings};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may wait for the whole head of its next request (`IdleTimeout` in `server.go`). A request ends when hyper has
/// its last bytes: a client may also take this long to read the last megabyte.
const IDLE: Duration = Duration::from_secs(90);
/// How often a client of HTTP/2 must show that it is alive.
const PING: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes: `MaxHeaderBytes` (1 MiB), and what `net/http` adds for its buffer. Also of the streaming server
/// of a runtime, to which the headers of a client are handed on.
pub(crate) const MAX_HEAD: usize = (1 << 20) + (4 << 10);
/// The most headers of a request over HTTP/1.1. hyper makes room for all of them before it reads one.
pub(crate) const MAX_HEADERS: usize = 1000;
/// The largest head of a request over HTTP/2, each header with 32 bytes more: `MaxHeaderBytes`, and what `net/http` adds for ten headers.
const MAX_HEADER_LIST: u32 = (1 << 20) + 320;
/// How many requests a client may have on one HTTP/2 connection.
const MAX_STREAMS: u32 = 250;
/// How many connections are open at most, unless set.
const CONNECTIONS: usize = 4096;
/// How many connections wait to be accepted.
const BACKLOG: u32 = 1024;
/// The wait before the next try to bind an address that is in use.
const TAKEN: Duration = Duration::from_secs(5);
/// The wait after a failed `accept`.
const PAUSE: Duration = Duration::from_millis(100);
/// How long requests may go on after the shutdown.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Serves a [`NodeApi`] on one address (`ListenAndServeKubeletServer`): HTTP/1.1 and HTTP/2, with TLS or without.
///
/// A connection that sends nothing is closed, a head is bounded, and so is the number of connections. Further ones wait.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    api: NodeApi,
    tls: Option<Arc<ServerConfig>>,
    connections: usize,
}

impl Server {
    /// Binds an address for HTTPS. `[::]` takes IPv4 connections, too.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] if the address cannot be bound; [`Error::Setting`] if the TLS settings do not fit together.
    pub fn bind(address: SocketAddr, api: NodeApi, tls: &TlsSettings) -> Result<Self, Error> {
        let asks_clients = api
            .authentication()
            .is_some_and(Authentication::verifies_certificates);
        let tls = tls.server_config(asks_clients)?;
        Self::listen(address, api, Some(tls))
    }

    /// Binds an address for HTTP: the read-only port.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`] if the address cannot be bound.
    pub fn bind_insecure(address: SocketAddr, api: NodeApi) -> Result<Self, Error> {
        Self::listen(address, api, None)
    }

    fn listen(address: SocketAddr, api: NodeApi, tls: Option<Arc<ServerConfig>>) -> Result<Self, Error> {
        let failed = |source| Error::Listen { address, source };
        let listener = bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            listener,
            address,
            api,
            tls,
            connections: CONNECTIONS,
        })
    }

    /// How many connections may be open; 4,096 unless set.
    #[must_use]
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`. Then requests have two seconds to end.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Dropping it closes all connections.
    pub async fn run(self, shutdown: CancellationToken) {
        tracing::info!(address = %self.address, "Starting to listen");
        let (places, mut open) = (Arc::new(Semaphore::new(self.connections)), JoinSet::new());
        let closing = CancellationToken::new();
        let tls = self.tls.map(TlsAcceptor::from);
        let sessions = Sessions::new();
        let _ends_with_this_future = sessions.guard();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = open.join_next(), if !open.is_empty() => {}
                accepted = accept(&self.listener, &places) => {
                    let (stream, client, place) = accepted;
                    let closing = closing.clone();
                    let (api, tls, sessions) = (self.api.clone(), tls.clone(), sessions.clone());
                    open.spawn(async move {
                        serve(stream, Connection { client, api, sessions }, tls, closing).await;
                        drop(place);
                    });
                }
            }
        }
        drop(self.listener);
        // Whoever does not end in time is cut off when `open` is dropped.
        closing.cancel();
        let all = async { while open.join_next().await.is_some() {} };
        drop(tokio::time::timeout(GRACE, all).await);
        sessions.end().await;
    }

    /// Binds an address and serves until `shutdown`. While another program has the address, for example an agent that is
    /// about to end, it tries again every 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the TLS settings do not fit together.
    ///
    /// # Cancel safety
    ///
    /// As for [`run`](Self::run).
    pub async fn serve(
        address: SocketAddr,
        api: NodeApi,
        tls: Option<&TlsSettings>,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        loop {
            let bound = match tls {
                Some(tls) => Self::bind(address, api.clone(), tls),
                None => Self::bind_insecure(address, api.clone()),
            };
            match bound {
                Ok(server) => {
                    server.run(shutdown).await;
                    return Ok(());
                }
                // The address may be free later.
                Err(error @ Error::Listen { .. }) => tracing::error!(%error, "Failed to listen and serve"),
                Err(error) => return Err(error),
            }
            if shutdown
                .run_until_cancelled(tokio::time::sleep(TAKEN))
                .await
                .is_none()
            {
                return Ok(());
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    // Accepted connections have it, too: a client that vanished is noticed.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, Option<OwnedSemaphorePermit>) {
    loop {
        // A semaphore that is never closed.
        let place = places.clone().acquire_owned().await.ok();
        match listener.accept().await {
            Ok((stream, client)) => return (stream, client, place),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What the requests of a connection have in common.
pub(crate) struct Connection {
    pub(crate) client: SocketAddr,
    pub(crate) api: NodeApi,
    pub(crate) sessions: Sessions,
}

/// Serves one client. Each stage is boxed, so that a connection which lives long needs no memory for the stages before:
/// a handshake needs much, and one of HTTP/2 more than one of HTTP/1.1.
async fn serve(
    stream: TcpStream,
    connection: Connection,
    tls: Option<TlsAcceptor>,
    closing: CancellationToken,
) {
    // Streams send small pieces that should arrive at once.
    drop(stream.set_nodelay(true));
    let serving = match tls {
        None => Some(http(stream, connection, None, false, closing)),
        Some(tls) => handshake(stream, connection, tls, closing).boxed().await,
    };
    if let Some(serving) = serving {
        serving.await;
    }
}

async fn handshake(
    stream: TcpStream,
    connection: Connection,
    tls: TlsAcceptor,
    closing: CancellationToken,
) -> Option<BoxFuture<'static, ()>> {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let session = stream.get_ref().1;
            let certificates = session.peer_certificates().and_then(ClientCertificates::new);
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            return Some(http(stream, connection, certificates, is_http2, closing));
        }
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake error"),
        Err(_) => tracing::debug!("TLS handshake timeout"),
    }
    None
}

/// The version is not detected from the first bytes: hyper would wait for them for ever.
pub(crate) fn http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    certificates: Option<ClientCertificates>,
    is_http2: bool,
    closing: CancellationToken,
) -> BoxFuture<'static, ()> {
    let requests = Requests::new();
    let service = connection.service(certificates, requests.clone());
    let stream = TokioIo::new(stream);
    if is_http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_LIST);
        until_idle(http.serve_connection(stream, service), requests, closing).boxed()
    } else {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_HEAD);
        let serving = http.serve_connection(stream, service).with_upgrades();
        until_idle(serving, requests, closing).boxed()
    }
}

/// A connection that can end after its present requests.
trait Closing: Future<Output = hyper::Result<()>> {
    fn close(self: Pin<&mut Self>);
}

impl<I, S, B> Closing for http1::UpgradeableConnection<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Error: Into<BoxError>> + 'static,
{
    fn close(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, S, B> Closing for http2::Connection<I, S, TokioExecutor>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Error: Into<BoxError>> + 'static,
    TokioExecutor: Http2ServerConnExec<S::Future, B>,
{
    fn close(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Serves a connection until it ends, or has had no request for a while.
async fn until_idle(serving: impl Closing, requests: Requests, closing: CancellationToken) {
    let (mut serving, mut is_closing) = (pin!(serving), false);
    let mut idle = pin!(requests.idle_for(IDLE));
    loop {
        // A client that sends nothing, or only answers pings, is idle. hyper waits for its first byte for ever.
        tokio::select! {
            biased;
            () = closing.cancelled(), if !is_closing => {
                is_closing = true;
                serving.as_mut().close();
            }
            served = &mut serving => {
                if let Err(error) = served {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut idle => return tracing::debug!("connection is idle"),
        }
    }
}

impl Connection {
    /// The service of its requests.
    fn service(
        self,
        certificates: Option<ClientCertificates>,
        requests: Requests,
    ) -> TowerToHyperService<MapRequest<NodeApi, impl FnMut(Request<Incoming>) -> Request<Incoming> + Clone>>
    {
        let Self {
            client,
            api,
            sessions,
        } = self;
        let identify = MapRequestLayer::new(move |mut request: Request<Incoming>| {
            let extensions = request.extensions_mut();
            extensions.insert(client);
            extensions.insert(sessions.clone());
            extensions.insert(requests.begin());
            if let Some(certificates) = &certificates {
                extensions.insert(certificates.clone());
            }
            request
        });
        TowerToHyperService::new(identify.layer(api))
    }
}
