//! How a plugin is reached: at its socket, or in this process.

use std::path::PathBuf;
use std::time::Duration;

use kubelet_plugins::Transport;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long a connection may take. The kubelet's, without a name there.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

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

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<Transport, String> {
        let path = match self {
            Self::InProcess(transport) => return Ok(transport.clone()),
            Self::Socket(path) => path,
        };
        let dialed = timeout(DIAL_TIMEOUT, async {
            let stream = UnixStream::connect(path).await;
            let transport = Transport::over(stream.map_err(|error| error.to_string())?).await;
            transport.map_err(|error| error.to_string())
        });
        match dialed.await {
            Ok(transport) => transport,
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }
}
