//! How a plugin is reached: at its socket, or in this process.

use std::io;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::{StdError, http};
use tonic::transport::Endpoint;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// How long a connection may take. The kubelet's, without a name there.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

type Boxed = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, StdError>;

/// Sends calls to a plugin.
#[derive(Clone)]
pub(crate) struct Transport(Boxed);

impl Service<http::Request<Body>> for Transport {
    type Response = http::Response<Body>;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

/// Where a plugin is.
pub(crate) enum Place {
    Socket(PathBuf),
    InProcess(Transport),
}

impl Place {
    /// Its socket, if it has one.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        match self {
            Self::Socket(path) => Some(path.clone()),
            Self::InProcess(_) => None,
        }
    }

    /// A gRPC service of this process.
    pub(crate) fn in_process<S, E>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = E>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
        E: Into<StdError> + 'static,
    {
        let service = service.map_err(Into::into);
        Self::InProcess(Transport(BoxCloneSyncService::new(service)))
    }

    /// A new connection. It ends for good when it breaks: another plugin may then be at the same path.
    pub(crate) async fn connect(&self) -> Result<Transport, String> {
        let path = match self {
            Self::InProcess(transport) => return Ok(transport.clone()),
            Self::Socket(path) => path,
        };
        let dialed = timeout(DIAL_TIMEOUT, async {
            let stream = UnixStream::connect(path)
                .await
                .map_err(|error| error.to_string())?;
            let mut once = Some(stream);
            let connector = tower::service_fn(move |_| {
                let stream = once.take().map(TokioIo::new);
                std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
            });
            let endpoint = Endpoint::from_static("http://localhost");
            let channel = endpoint.connect_with_connector(connector).await;
            channel.map_err(|error| error.to_string())
        });
        let channel = match dialed.await {
            Ok(channel) => channel?,
            Err(_) => return Err("context deadline exceeded".to_owned()),
        };
        Ok(Transport(BoxCloneSyncService::new(
            channel.map_err(StdError::from),
        )))
    }
}
