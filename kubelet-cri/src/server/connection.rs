//! The connections of a server: HTTP/2 over a stream, and each request goes to the service in its path.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::codegen::{Service, http};

use super::calls::Calls;
use crate::services::{ImageService, RuntimeService};
use crate::v1::MAX_MESSAGE_BYTES;
use crate::v1::grpc_server::image_service_server::ImageServiceServer;
use crate::v1::grpc_server::runtime_service_server::RuntimeServiceServer;

/// Lets one large message through without a window update at every 64 KiB.
const WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// The state that all connections share.
pub(super) struct Connections {
    router: Router,
    tasks: Tasks,
    shutdown: CancellationToken,
}

impl Connections {
    pub(super) fn new(
        runtime: Arc<dyn RuntimeService>,
        images: Arc<dyn ImageService>,
        tracker: TaskTracker,
        shutdown: CancellationToken,
        stop: CancellationToken,
    ) -> Self {
        let calls = Arc::new(Calls::new(runtime, images, shutdown.clone()));
        let router = Router {
            runtime: RuntimeServiceServer::from_arc(calls.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            images: ImageServiceServer::from_arc(calls)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        };
        Self {
            router,
            tasks: Tasks { tracker, stop },
            shutdown,
        }
    }

    /// Serves one connection in its own task, until the connection ends or the shutdown is complete.
    pub(super) fn spawn(&self, stream: UnixStream) {
        let shutdown = self.shutdown.clone();
        let connection = http2::Builder::new(self.tasks.clone())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            // As in grpc-go: a kubelet with many pods makes many calls at once.
            .max_concurrent_streams(None)
            .serve_connection(TokioIo::new(stream), self.router.clone());
        self.tasks.execute(async move {
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = shutdown.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "CRI connection ended");
            }
        });
    }
}

/// Runs the tasks of connections and calls, so that the server can stop them and wait for them.
#[derive(Clone)]
struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            // It ended either way; the difference does not matter.
            let _ = stop.run_until_cancelled_owned(task).await;
        });
    }
}

/// Passes a request to the service in its path.
#[derive(Clone)]
struct Router {
    runtime: RuntimeServiceServer<Calls>,
    images: ImageServiceServer<Calls>,
}

type Response = http::Response<tonic::body::Body>;

impl hyper::service::Service<http::Request<Incoming>> for Router {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let path = request.uri().path();
        if path.starts_with("/runtime.v1.RuntimeService/") {
            self.runtime.clone().call(request)
        } else if path.starts_with("/runtime.v1.ImageService/") {
            self.images.clone().call(request)
        } else {
            let status = Status::unimplemented(format!("unknown service of {path:?}"));
            Box::pin(async move { Ok(status.into_http()) })
        }
    }
}
