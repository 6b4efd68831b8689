//! Serves a gRPC service on a unix socket.

use std::convert::Infallible;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use kubelet_core::files;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use super::authority::LocalAuthority;

/// How many clients may be connected. Those on a node are few.
const MAX_CONNECTIONS: usize = 100;
/// After a failure to accept a connection, such as too many open files.
const RETRY: Duration = Duration::from_millis(100);

/// Listens on a socket. Makes its folder, which only root and its group may enter, and replaces the socket of an agent that
/// ended.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    }
    files::remove(path)?;
    UnixListener::bind(path)
}

/// Serves until `shutdown`, and then closes all connections.
///
/// # Cancel safety
///
/// May be dropped at any time. Dropping it closes all connections.
pub(crate) async fn serve<S>(listener: UnixListener, service: S, shutdown: CancellationToken)
where
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let service = TowerToHyperService::new(service.clone());
                connections.spawn(async move {
                    let connection = http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(LocalAuthority::new(stream)), service);
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a client's connection ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
    connections.shutdown().await;
}
