//! Serving on a TCP port, for clients in other processes.

use std::io;
use std::net::SocketAddr;

use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::http::{ApiService, TOKEN_PATH};
use super::request::User;
use super::server::ApiServer;

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
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The one who called is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => break Err(error),
            },
            Some(_) = connections.join_next() => continue,
        };
        let open = open(stream);
        let server = auto::Builder::new(streams.clone());
        #[cfg(feature = "tls")]
        let streams = streams.clone();
        connections.spawn(async move {
            // A connection that breaks, or never comes to be, is the client's to notice.
            if let Ok((stream, service)) = open.await {
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
