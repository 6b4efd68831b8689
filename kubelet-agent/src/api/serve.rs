//! The API server while the agent runs.

use kube_client::Client;
use kubelet_apiserver::User;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::OwnApiServer;
use crate::{Error, Result};

/// The API server, ready to run.
pub(crate) struct Served {
    pub(crate) own: OwnApiServer,
    node_name: String,
    listener: TcpListener,
}

impl Served {
    pub(super) fn new(own: OwnApiServer, node_name: String, listener: TcpListener) -> Self {
        Self {
            own,
            node_name,
            listener,
        }
    }

    /// The node's client. Its requests stay in the process.
    pub(crate) fn node_client(&self) -> Client {
        self.own.server.client_as(User::node(&self.node_name))
    }

    /// Serves until `shutdown`: closes the port, then writes what is left to the file. If the port fails, it cancels `failed`, and
    /// writes the changes of the other parts until they have ended, too.
    pub(crate) async fn run(self, shutdown: CancellationToken, failed: CancellationToken) -> Result<()> {
        let (close, last) = (CancellationToken::new(), CancellationToken::new());
        let (server, stop) = (self.own.server.clone(), last.clone());
        let mut writing = spawn(async move { Ok(server.run(stop).await?) });
        let (server, stop, listener) = (self.own.server.clone(), close.clone(), self.listener);
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
