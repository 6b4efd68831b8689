//! How the calls to a plugin are sent: over its socket, or to a service in this process.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::codegen::{StdError, http};
use tonic::transport::Endpoint;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// Sends the calls of a gRPC client to a plugin.
#[derive(Clone, Debug)]
pub struct Transport(BoxCloneSyncService<http::Request<Body>, http::Response<Body>, StdError>);

impl Transport {
    /// To a gRPC service of this process, or over a channel.
    pub fn new<S, E>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = E>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
        E: Into<StdError> + 'static,
    {
        Self(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    /// Over a connection to the plugin's socket. It ends for good when it breaks: another plugin may then be at the same
    /// path.
    ///
    /// # Errors
    ///
    /// If the plugin does not speak HTTP/2.
    pub async fn over(stream: UnixStream) -> Result<Self, tonic::transport::Error> {
        let mut once = Some(stream);
        let connector = tower::service_fn(move |_| {
            let stream = once.take().map(TokioIo::new);
            std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
        });
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint.connect_with_connector(connector).await.map(Self::new)
    }
}

impl Service<http::Request<Body>> for Transport {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}
