//! The API server while the agent runs.

use std::sync::Arc;

use kubelet_apiserver::{ApiServer, FileStorage};
use kubelet_core::Disk;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Error, Result};

/// The API server, ready to run.
pub(super) struct Served {
    server: ApiServer,
    listener: TcpListener,
    file: OpenFile,
    disk: Disk,
}

/// Closes the file of the objects when it is dropped. Handles of the agent and clients of the server may live longer.
pub(super) struct OpenFile(pub(super) Arc<FileStorage>);

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Served {
    pub(super) fn new(server: ApiServer, listener: TcpListener, (file, disk): (OpenFile, Disk)) -> Self {
        Self {
            server,
            listener,
            file,
            disk,
        }
    }

    /// Serves until `shutdown`: closes the port, writes what is left to the file, then closes the file. If the port fails, it cancels
    /// `failed`, and writes the changes of the other parts until they have ended, too.
    pub(super) async fn run(self, shutdown: CancellationToken, failed: CancellationToken) -> Result<()> {
        let (file, disk) = (self.file, self.disk);
        let served = serve(self.server, self.listener, shutdown, failed).await;
        let closed = disk.run(move || {
            drop(file);
            Ok(())
        });
        served.and(closed.await.map_err(super::no_error))
    }
}

/// Serves on the port, and writes changes to the storage, until `shutdown`.
async fn serve(
    server: ApiServer,
    listener: TcpListener,
    shutdown: CancellationToken,
    failed: CancellationToken,
) -> Result<()> {
    let (close, last) = (CancellationToken::new(), CancellationToken::new());
    let (writer, stop) = (server.clone(), last.clone());
    let mut writing = spawn(async move { Ok(writer.run(stop).await?) });
    let stop = close.clone();
    let mut listening = spawn(async move {
        let served = server.serve_tls(listener, stop).await;
        served.map_err(|source| Error::Io {
            what: "the API server cannot accept connections".to_owned(),
            source,
        })
    });
    let closed = tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        ended = &mut listening => Some(ended),
        ended = &mut writing => {
            failed.cancel();
            return joined(ended);
        }
    };
    let closed = match closed {
        Some(ended) => {
            failed.cancel();
            shutdown.cancelled().await;
            joined(ended)
        }
        None => {
            close.cancel();
            joined(listening.await)
        }
    };
    last.cancel();
    joined(writing.await).and(closed)
}

/// Spawns a task that ends when its handle is dropped.
fn spawn(task: impl Future<Output = Result<()>> + Send + 'static) -> AbortOnDropHandle<Result<()>> {
    AbortOnDropHandle::new(tokio::spawn(task) as JoinHandle<_>)
}

fn joined(ended: Result<Result<()>, JoinError>) -> Result<()> {
    ended.map_err(|source| Error::Panicked {
        part: "API server",
        source,
    })?
}
