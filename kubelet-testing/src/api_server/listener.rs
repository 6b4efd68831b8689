//! The server on a TCP port, for clients of other processes.

use std::io;
use std::net::SocketAddr;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::http::TOKEN_PATH;
use super::request::User;
use super::server::ApiServer;

impl ApiServer {
    /// Serves HTTP/1.1 and HTTP/2, without TLS, until `shutdown`. Users come from the `Authorization` header.
    ///
    /// All connections are tasks of this future: they end with it. Dropping it is a shutdown at once; nothing is lost, a
    /// write is done or not.
    ///
    /// # Errors
    ///
    /// When the listener fails for good.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // The one who called is gone.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    Err(error) => return Err(error),
                },
                Some(_) = connections.join_next() => continue,
            };
            let service = TowerToHyperService::new(self.service());
            connections.spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                // A connection that breaks is the client's to notice.
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
        connections.shutdown().await;
        Ok(())
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
