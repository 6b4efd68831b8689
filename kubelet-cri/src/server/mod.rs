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

/// How long calls under way may take to end after the shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Wait after the system refused a connection, such as for want of file descriptors.
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
/// A client must name a valid `:authority`, as grpc-go and tonic do; one on the C core of gRPC (Python, C++) has to be
/// told `grpc.default_authority=localhost`, for it sends the path of the socket otherwise.
///
/// The example `serve-cri` is a whole program, with the commands to try it. A Go client refuses an endpoint that does not
/// answer `Version` and `ImageFsInfo`.
///
/// Messages may have up to 16 MiB either way. A call whose client goes away or gives up is dropped; see
/// [`RuntimeService`] for what that asks of a runtime.
pub struct CriServer {
    runtime: Arc<dyn RuntimeService>,
    images: Arc<dyn ImageService>,
    grace: Duration,
}

impl CriServer {
    /// A server of these two.
    pub fn new(runtime: Arc<dyn RuntimeService>, images: Arc<dyn ImageService>) -> Self {
        Self {
            runtime,
            images,
            grace: SHUTDOWN_GRACE,
        }
    }

    /// How long calls under way may take to end after the shutdown; 5 s by default.
    #[must_use]
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Serves until `shutdown`.
    ///
    /// Then takes no more connections, removes the socket, ends streams with [`Code::Unavailable`], gives calls under
    /// way the grace period, and comes back when all its tasks have ended. When dropped instead, its tasks are told to
    /// end, not waited for.
    ///
    /// # Errors
    ///
    /// None at present: a connection that fails is logged, the others go on.
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
                    tracing::warn!(socket = %socket.path().display(), %error, "cannot take a connection");
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
            tracing::warn!("calls were still under way after the grace period; they are dropped");
        }
        stop.cancel();
        tasks.wait().await;
        Ok(())
    }
}

/// The status that goes over the wire: code and message; the client knows the call and the id.
fn status(error: &Error) -> tonic::Status {
    // OK is no error; gRPC would take it for an answer without a message.
    let code = if error.code() == Code::Ok {
        Code::Unknown
    } else {
        error.code()
    };
    tonic::Status::new(tonic::Code::from_i32(code.into()), error.message())
}
