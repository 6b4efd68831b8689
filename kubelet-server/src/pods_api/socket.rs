//! The socket of the API, and its connections.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use kubelet_core::files;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::PodsApi;

/// How many clients may be connected. Those on a node are few.
const MAX_CONNECTIONS: usize = 100;
/// After a failure to accept a connection, such as too many open files.
const RETRY: Duration = Duration::from_millis(100);

/// Listens on a socket. Makes its folder, which only root and its group may enter, and replaces the socket of an agent that
/// ended.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    }
    // Clients see the old socket, then the new one, and never none.
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    files::remove(Path::new(&new))?;
    let listener = UnixListener::bind(&new)?;
    fs::rename(&new, path)?;
    Ok(listener)
}

impl PodsApi {
    /// Serves until `shutdown`, which ends all watches.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Dropping it closes all connections.
    pub async fn serve(&self, listener: UnixListener, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
            };
            match accepted {
                Ok((stream, _)) => drop(connections.spawn(self.clone().connection(stream))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client of the pods API");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        connections.shutdown().await;
    }

    async fn connection(self, stream: UnixStream) {
        let service = TowerToHyperService::new(self.service());
        let served = http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "connection of the pods API ended");
        }
    }
}
