//! Serves a runtime written in Rust as CRI gRPC on a unix socket.

mod calls;
mod connection;
mod socket;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::connection::Connections;
pub use self::socket::CriSocket;
use crate::error::{Code, Error};
use crate::services::{ImageService, RuntimeService};

/// How long unfinished calls may take after the shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Wait after the system could not accept a connection, for example because there were no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Exposes any [`RuntimeService`] and [`ImageService`] on a unix socket, so that `crictl`, a Go kubelet or
/// [`CriClient`](crate::CriClient) can drive it.
///
/// ```
/// # use std::sync::Arc;
/// # use kubelet_cri::{CriServer, CriSocket, Error, ImageService, RuntimeService};
/// # use tokio_util::sync::CancellationToken;
/// async fn expose(
///     runtime: Arc<dyn RuntimeService>,
///     images: Arc<dyn ImageService>,
///     shutdown: CancellationToken,
/// ) -> Result<(), Error> {
///     let socket = CriSocket::bind("/run/my-runtime/cri.sock", 0o600).await?;
///     CriServer::new(runtime, images).serve(socket, shutdown).await
/// }
/// ```
///
/// A client must send a valid `:authority`, as grpc-go and tonic do. A client on the C core of gRPC (Python, C++) sends
/// the path of the socket; set its option `grpc.default_authority=localhost`.
///
/// The example `serve-cri` is a whole program, with the commands to try it. A Go client refuses an endpoint that does not
/// answer `Version` and `ImageFsInfo`.
///
/// Messages may have up to 16 MiB in each direction. If the client disconnects or cancels a call, the server drops that
/// call; see [`RuntimeService`] for what a runtime must then do.
pub struct CriServer {
    runtime: Arc<dyn RuntimeService>,
    images: Arc<dyn ImageService>,
    grace: Duration,
}

impl CriServer {
    /// A server of these two services.
    pub fn new(runtime: Arc<dyn RuntimeService>, images: Arc<dyn ImageService>) -> Self {
        Self {
            runtime,
            images,
            grace: SHUTDOWN_GRACE,
        }
    }

    /// How long unfinished calls may take after the shutdown; 5 s by default.
    #[must_use]
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Serves until `shutdown`.
    ///
    /// After the shutdown it accepts no connections, removes the socket, ends streams with [`Code::Unavailable`], waits
    /// for unfinished calls for the grace period, and returns when all its tasks have ended. If it is dropped instead,
    /// its tasks are cancelled, and it does not wait for them.
    ///
    /// # Errors
    ///
    /// None at present. A connection that fails is logged, and the others continue.
    pub async fn serve(self, socket: CriSocket, shutdown: CancellationToken) -> Result<(), Error> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let _stop_when_dropped = stop.clone().drop_guard();
        let connections = Connections::new(
            self.runtime,
            self.images,
            tasks.clone(),
            shutdown.clone(),
            stop.clone(),
        );
        tracing::info!(socket = %socket.path().display(), "serving CRI");
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok(stream) => connections.spawn(stream),
                Err(error) => {
                    tracing::warn!(socket = %socket.path().display(), %error, "cannot accept a connection");
                    tokio::select! {
                        () = shutdown.cancelled() => break,
                        () = sleep(ACCEPT_RETRY_DELAY) => {}
                    }
                }
            }
        }
        drop(socket);
        tasks.close();
        if timeout(self.grace, tasks.wait()).await.is_err() {
            tracing::warn!("dropping the calls that did not end within the grace period");
        }
        stop.cancel();
        tasks.wait().await;
        Ok(())
    }
}

/// The status that is sent: code and message. The client knows the call and the id.
fn status(error: &Error) -> tonic::Status {
    // OK is not an error: a client would read it as an answer without a message.
    let code = if error.code() == Code::Ok {
        Code::Unknown
    } else {
        error.code()
    };
    tonic::Status::new(tonic::Code::from_i32(code.into()), error.message())
}
