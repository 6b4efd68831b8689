//! How a driver is reached: at its socket, or in this process.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use kubelet_plugins::grpc_go::system_error;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{StdError, http};
use tonic::transport::Endpoint;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::status::CallError;

type Boxed = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, StdError>;

/// Sends calls to a driver.
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

/// Where a driver is.
#[derive(Clone)]
pub(crate) enum Place {
    Socket(PathBuf),
    InProcess(Transport),
}

impl Place {
    pub(crate) fn in_process(node: impl super::v1::node_server::Node) -> Self {
        let server = super::v1::node_server::NodeServer::new(node);
        let server = ServiceExt::<http::Request<Body>>::map_err(server, |never| match never {});
        Self::InProcess(Transport(BoxCloneSyncService::new(server)))
    }

    pub(crate) fn is_socket(&self, path: &Path) -> bool {
        match self {
            Self::Socket(socket) => socket == path,
            Self::InProcess(_) => false,
        }
    }

    /// A new connection. The error has the kubelet's text.
    pub(crate) async fn connect(&self) -> Result<Transport, CallError> {
        match self {
            Self::Socket(path) => dial(path).await,
            Self::InProcess(transport) => Ok(transport.clone()),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.fmt(f),
            Self::InProcess(_) => f.write_str("in this process"),
        }
    }
}

async fn dial(path: &Path) -> Result<Transport, CallError> {
    let stream = UnixStream::connect(path).await.map_err(|error| {
        let why = system_error(&error);
        CallError::new(
            Code::Unavailable,
            format!(
                "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {why}\"",
                path.display()
            ),
        )
    })?;
    let mut once = Some(stream);
    let connector = tower::service_fn(move |_| {
        let stream = once.take().map(TokioIo::new);
        std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await;
    let channel =
        channel.map_err(|error| CallError::new(Code::Unavailable, format!("connection error: {error}")))?;
    let channel = channel.map_err(StdError::from);
    Ok(Transport(BoxCloneSyncService::new(channel)))
}
