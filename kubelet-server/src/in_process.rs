//! Connections that come from within the process.

use std::net::{Ipv4Addr, SocketAddr};

use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::{Connection, GRACE, serve_http};
use crate::{NodeApi, Sessions};

impl NodeApi {
    /// Serves HTTP/1.1 on these connections until `shutdown`, without a port: for an API server in the same process. Who can send
    /// a connection is the client. Then requests have two seconds to end.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Dropping it closes all connections.
    pub async fn serve_connections<S>(self, mut connections: mpsc::Receiver<S>, shutdown: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut open, graceful, sessions) = (JoinSet::new(), GracefulShutdown::new(), Sessions::new());
        let _ends_with_this_future = sessions.guard();
        let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = open.join_next(), if !open.is_empty() => {}
                connection = connections.recv() => {
                    let Some(stream) = connection else { break };
                    let connection = Connection { client, api: self.clone(), sessions: sessions.clone() };
                    open.spawn(serve_http(stream, connection, None, false, graceful.watcher()));
                }
            }
        }
        // Whoever does not end in time is cut off when `open` is dropped.
        drop(tokio::time::timeout(GRACE, graceful.shutdown()).await);
        sessions.end().await;
    }
}
