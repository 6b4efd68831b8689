//! How a driver is reached: at its socket, or in this process.

use std::fmt;
use std::path::{Path, PathBuf};

use kubelet_plugins::Transport;
use kubelet_plugins::grpc_go::system_error;
use tokio::net::UnixStream;
use tonic::Code;

use super::status::CallError;

/// Where a driver is.
#[derive(Clone)]
pub(crate) enum Place {
    Socket(PathBuf),
    InProcess(Transport),
}

impl Place {
    pub(crate) fn in_process(node: impl super::v1::node_server::Node) -> Self {
        Self::InProcess(Transport::new(super::v1::node_server::NodeServer::new(node)))
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
    let transport = Transport::over(stream).await;
    transport.map_err(|error| CallError::new(Code::Unavailable, format!("connection error: {error}")))
}
