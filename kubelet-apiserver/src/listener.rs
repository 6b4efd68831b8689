//! Serving on a TCP port, for clients in other processes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http::{ApiService, TOKEN_PATH};
use super::request::User;
use super::server::ApiServer;

/// How many connections are open at once; further clients wait for one of them to end.
const MAX_CONNECTIONS: usize = 1024;
/// How long a TLS handshake may take. It is kube-apiserver's `ReadHeaderTimeout`, which Go applies to handshakes, too.
const HANDSHAKE: Duration = Duration::from_secs(32);
/// The pause after a failed accept, for example without free file descriptors.
const PAUSE: Duration = Duration::from_secs(1);
/// The largest head of a request, in bytes: kube-apiserver's `MaxHeaderBytes` (1 MiB), and what `net/http` adds for its buffer.
const MAX_HEAD: usize = (1 << 20) + (4 << 10);
/// The most headers of a request over HTTP/1.1. hyper makes room for all of them before it reads one.
const MAX_HEADERS: usize = 1000;
/// The largest head of a request over HTTP/2, each header with 32 bytes more: `MaxHeaderBytes`, and what `net/http` adds for ten headers.
const MAX_HEADER_LIST: u32 = (1 << 20) + 320;
/// How many requests a client may have on one HTTP/2 connection (`MaxConcurrentStreams`).
const MAX_STREAMS: u32 = 100;
/// `EBADF`, which has no [`io::ErrorKind`].
const BAD_DESCRIPTOR: i32 = 9;

/// Runs the streams of HTTP/2 connections, and upgraded connections, until `stop`.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Streams {
    pub(crate) fn spawn(&self, stream: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = stream => {}
            }
        });
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.spawn(stream);
    }
}

impl ApiServer {
    /// Serves HTTP/1.1 and HTTP/2, without TLS, until `shutdown`. Users come from the `Authorization` header, or from the
    /// URL as in a [`kubeconfig`](Self::kubeconfig).
    ///
    /// At most 1024 connections are open at once. If no connection can be accepted, for example because the process has too many
    /// open files, this logs it and tries again every second.
    ///
    /// All that it starts has ended when it returns. Dropping it is a shutdown at once; nothing is lost, a write is done or
    /// not.
    ///
    /// # Errors
    ///
    /// When the listener fails for good.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        let service = self.service();
        let plain = move |stream| std::future::ready(Ok((stream, service.clone())));
        run(listener, shutdown, plain).await
    }

    /// The text of a kubeconfig for a server at `address`, that makes `kubectl` (or a kube client) a user of it.
    ///
    /// The user's token is in the URL, since `kubectl` sends no credentials over plain HTTP.
    pub fn kubeconfig(&self, address: SocketAddr, user: User) -> String {
        let token = self.token_for(user);
        [
            "apiVersion: v1",
            "kind: Config",
            "current-context: memory",
            "clusters:",
            "- name: memory",
            "  cluster:",
            &format!("    server: http://{address}{TOKEN_PATH}{token}"),
            "users:",
            "- name: memory",
            "contexts:",
            "- name: memory",
            "  context: {cluster: memory, user: memory}",
            "",
        ]
        .join("\n")
    }
}

/// Accepts connections until `shutdown`; `open` makes of each a stream of HTTP and the service that answers.
pub(super) async fn run<S, F>(
    listener: TcpListener,
    shutdown: CancellationToken,
    open: impl Fn(TcpStream) -> F,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<(S, ApiService)>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let streams = Streams {
        tasks: TaskTracker::new(),
        stop: shutdown.child_token(),
    };
    let _stop_when_dropped = streams.stop.clone().drop_guard();
    let end = loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => break Ok(()),
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => stream,
                // The one who called is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) if is_final(&error) => break Err(error),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again");
                    tokio::select! {
                        () = shutdown.cancelled() => break Ok(()),
                        () = sleep(PAUSE) => continue,
                    }
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let open = open(stream);
        let mut server = auto::Builder::new(streams.clone());
        server.http1().max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD);
        server
            .http2()
            .max_header_list_size(MAX_HEADER_LIST)
            .max_concurrent_streams(MAX_STREAMS);
        #[cfg(feature = "tls")]
        let streams = streams.clone();
        connections.spawn(async move {
            // A connection that breaks, or never comes to be, is the client's to notice.
            if let Ok(Ok((stream, service))) = timeout(HANDSHAKE, open).await {
                #[cfg(feature = "tls")]
                let service = service.with_streams(streams);
                let service = TowerToHyperService::new(service);
                let _ = server
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .await;
            }
        });
    };
    connections.shutdown().await;
    streams.stop.cancel();
    streams.tasks.close();
    streams.tasks.wait().await;
    end
}

/// Whether a listener with this error accepts no connection any more. The others pass: too many open files, no memory, or an
/// error of the network that was meant for the connection.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    ) || error.raw_os_error() == Some(BAD_DESCRIPTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_outlives_a_lack_of_file_descriptors() {
        const EMFILE: i32 = 24;
        const ENFILE: i32 = 23;
        const ENOMEM: i32 = 12;
        const EINVAL: i32 = 22;
        for passes in [EMFILE, ENFILE, ENOMEM] {
            assert!(!is_final(&io::Error::from_raw_os_error(passes)), "{passes}");
        }
        for stays in [EINVAL, BAD_DESCRIPTOR] {
            assert!(is_final(&io::Error::from_raw_os_error(stays)), "{stays}");
        }
    }
}
