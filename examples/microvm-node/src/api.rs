//! The HTTP API of an engine, on its unix socket: cloud-hypervisor's `/api/v1/vm.*`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::future::{Either, select};
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

/// A client of one engine. Each call is a connection of its own.
#[derive(Clone)]
pub(crate) struct Api {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{0}: the engine does not answer: {1}")]
    Unreachable(&'static str, Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}: the engine refused: {1}: {2}")]
    Refused(&'static str, StatusCode, String),
}

type Result<T> = std::result::Result<T, ApiError>;

/// What `vm.create` gets. Paths are those of the host.
#[derive(Serialize)]
pub(crate) struct VmConfig<'a> {
    pub(crate) cpus: Cpus,
    pub(crate) memory: Memory,
    pub(crate) payload: Payload<'a>,
    pub(crate) disks: [Disk<'a>; 3],
    pub(crate) net: Vec<Net>,
    pub(crate) serial: Serial<'a>,
    pub(crate) console: Serial<'a>,
}

#[derive(Serialize)]
pub(crate) struct Cpus {
    pub(crate) boot_vcpus: u64,
    pub(crate) max_vcpus: u64,
}

#[derive(Serialize)]
pub(crate) struct Memory {
    pub(crate) size: u64,
}

#[derive(Serialize)]
pub(crate) struct Payload<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) cmdline: String,
}

#[derive(Serialize)]
pub(crate) struct Disk<'a> {
    pub(crate) path: &'a Path,
    pub(crate) readonly: bool,
    /// Without it, the engine guesses, and then does not let the guest write the first sector.
    pub(crate) image_type: &'static str,
}

/// The engine makes the tap device, and gives it this address of the host.
#[derive(Serialize)]
pub(crate) struct Net {
    pub(crate) tap: String,
    pub(crate) ip: String,
    pub(crate) mask: String,
    pub(crate) mac: String,
}

#[derive(Serialize)]
pub(crate) struct Serial<'a> {
    pub(crate) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<&'a Path>,
}

#[derive(Deserialize)]
pub(crate) struct VmInfo {
    pub(crate) state: VmState,
}

/// A VM that was shut down is `Created` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum VmState {
    Created,
    Running,
    Shutdown,
    Paused,
    #[serde(other)]
    Other,
}

impl VmState {
    /// Whether there is a guest.
    pub(crate) fn is_up(self) -> bool {
        !matches!(self, Self::Created | Self::Shutdown)
    }
}

impl Api {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether the engine answers.
    pub(crate) async fn ping(&self) -> Result<()> {
        self.call(Method::GET, "vmm.ping", Bytes::new()).await.map(drop)
    }

    pub(crate) async fn create(&self, config: &VmConfig<'_>) -> Result<()> {
        let body = serde_json::to_vec(config).map_err(|error| unreachable("vm.create", error))?;
        self.call(Method::PUT, "vm.create", body.into()).await.map(drop)
    }

    /// An action without parameters: `vm.boot`, `vm.power-button`, `vm.shutdown`, `vm.delete`, `vmm.shutdown`.
    pub(crate) async fn act(&self, action: &'static str) -> Result<()> {
        self.call(Method::PUT, action, Bytes::new()).await.map(drop)
    }

    pub(crate) async fn info(&self) -> Result<VmInfo> {
        let answer = self.call(Method::GET, "vm.info", Bytes::new()).await?;
        serde_json::from_slice(&answer).map_err(|error| unreachable("vm.info", error))
    }

    /// The counters of the guest's devices, in JSON.
    pub(crate) async fn counters(&self) -> Result<Bytes> {
        self.call(Method::GET, "vm.counters", Bytes::new()).await
    }

    async fn call(&self, method: Method, action: &'static str, body: Bytes) -> Result<Bytes> {
        let (status, body) = self
            .exchange(method, action, body)
            .await
            .map_err(|error| ApiError::Unreachable(action, error))?;
        if !status.is_success() {
            let body = String::from_utf8_lossy(&body).into_owned();
            return Err(ApiError::Refused(action, status, body));
        }
        Ok(body)
    }

    async fn exchange(
        &self,
        method: Method,
        action: &str,
        body: Bytes,
    ) -> std::result::Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/{action}"))
            .header("Host", "localhost")
            .header("Content-Type", "application/json")
            .body(Full::new(body))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        // The connection is driven here, so it ends with the call.
        match select(Box::pin(answer), Box::pin(connection)).await {
            Either::Left((answer, _)) => answer,
            Either::Right((_, answer)) => answer.await,
        }
    }
}

fn unreachable(action: &'static str, error: serde_json::Error) -> ApiError {
    ApiError::Unreachable(action, Box::new(error))
}
