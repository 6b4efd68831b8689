//! Connections that come from within the process.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::{Connection, GRACE, http};
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
        let (mut open, closing, sessions) = (JoinSet::new(), CancellationToken::new(), Sessions::new());
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
                    open.spawn(http(stream, connection, None, false, closing.clone()));
                }
            }
        }
        // Whoever does not end in time is cut off when `open` is dropped.
        closing.cancel();
        let all = async { while open.join_next().await.is_some() {} };
        drop(tokio::time::timeout(GRACE, all).await);
        sessions.end().await;
    }
}
