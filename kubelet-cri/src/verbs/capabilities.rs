//! The optional capabilities of a runtime, beside the five verbs.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
use tokio::io::{AsyncRead, AsyncWrite};

use super::container::ContainerKey;
use super::error::Result;

/// Runs commands in running containers (CRI `ExecSync`: exec probes and hooks).
#[async_trait]
pub trait Exec: Send + Sync {
    /// Runs a command to its end and returns its output.
    ///
    /// # Cancel safety
    ///
    /// At the timeout, the adapter drops the call: kill the command then.
    async fn exec_sync(&self, key: &ContainerKey, command: &[String]) -> Result<ExecOutput>;
}

/// The result of a command in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code; 128+n if signal n ended it.
    pub exit_code: i32,
}

/// Attaches to the standard streams of a running container (CRI `Attach`).
///
/// To be served, it needs a streaming server; [`CriAdapter`](super::CriAdapter) runs none yet and refuses the call.
#[async_trait]
pub trait Attach: Send + Sync {
    /// The streams of its main process, from now on.
    async fn attach(&self, key: &ContainerKey) -> Result<Attached>;
}

/// The standard streams of a container; `None` for a stream that it does not have.
#[derive(Default)]
#[non_exhaustive]
pub struct Attached {
    /// Its standard input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Its standard output.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Its standard error.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

/// Connects to ports of a pod (CRI `PortForward`).
///
/// To be served, it needs a streaming server; [`CriAdapter`](super::CriAdapter) runs none yet and refuses the call.
#[async_trait]
pub trait PortForward: Send + Sync {
    /// A connection to a TCP port of the pod.
    async fn connect(&self, pod: &PodUid, port: u16) -> Result<Box<dyn ByteStream>>;
}

/// Bytes in both directions, such as a TCP connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Follows the rotation of log files (CRI `ReopenContainerLog`).
#[async_trait]
pub trait Logs: Send + Sync {
    /// Reopens the log file of a running container at its path, and returns once all further output goes there. The
    /// earlier file was renamed by the rotation.
    async fn reopen(&self, key: &ContainerKey) -> Result<()>;
}

/// Measures the usage of containers (CRI `ContainerStats`, `ListContainerStats`).
#[async_trait]
pub trait Stats: Send + Sync {
    /// The present usage of a container.
    async fn usage(&self, key: &ContainerKey) -> Result<Usage>;
}

/// The usage of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time since the start of the container.
    pub cpu: Duration,
    /// Working set: memory that cannot be reclaimed, in bytes.
    pub memory_working_set_bytes: u64,
}

/// Manages images (CRI `ImageService`).
#[async_trait]
pub trait Images: Send + Sync {
    /// All images that are present.
    async fn list(&self) -> Result<Vec<ImageInfo>>;

    /// The image with this name or id, if it is present.
    async fn status(&self, image: &str) -> Result<Option<ImageInfo>>;

    /// Pulls an image. Credentials are not passed on yet. There is no deadline; the pull is dropped when the pod is
    /// deleted.
    async fn pull(&self, image: &str) -> Result<ImageInfo>;

    /// Deletes an image. Succeeds if the image does not exist.
    async fn remove(&self, image: &str) -> Result<()>;

    /// The folder of the host with the images, if it differs from the folder of the containers. A kubelet removes
    /// unused images when the file system of this folder is full (CRI `ImageFsInfo`).
    fn dir(&self) -> Option<&Path> {
        None
    }
}

/// An image that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Its id: `imageID` in the API.
    pub id: String,
    /// Its names, `NAME:TAG`.
    pub names: Vec<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The numeric user of its containers, if the image sets one.
    pub uid: Option<i64>,
    /// Whether it is pinned: a kubelet that frees disk space does not remove it.
    pub pinned: bool,
}

impl ImageInfo {
    /// An image of which only the name is known. The name is its id, too.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            id: name.clone(),
            names: vec![name],
            ..Self::default()
        }
    }
}

/// Reports when a container changed (CRI `GetContainerEvents`).
pub trait Events: Send + Sync {
    /// A stream of the containers that end from now on, each at least once. An item is only a hint to read the state. A
    /// lost item only delays the reader.
    fn watch(&self) -> BoxStream<'static, ContainerKey>;
}
