//! What a runtime may be able to do beside the five verbs.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
use tokio::io::{AsyncRead, AsyncWrite};

use super::container::ContainerKey;
use super::error::Result;

/// Runs commands in running containers (CRI `ExecSync`; exec probes and hooks).
#[async_trait]
pub trait Exec: Send + Sync {
    /// Runs a command to its end and returns what it wrote.
    ///
    /// # Cancel safety
    ///
    /// At its timeout the call is dropped: the command must then be killed.
    async fn exec_sync(&self, key: &ContainerKey, command: &[String]) -> Result<ExecOutput>;
}

/// What a command in a container came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code; 128+n if signal n ended it.
    pub exit_code: i32,
}

/// Gives the standard streams of a running container (CRI `Attach`).
///
/// To be served, it needs a streaming server; [`CriAdapter`](super::CriAdapter) runs none yet and refuses the call.
#[async_trait]
pub trait Attach: Send + Sync {
    /// The streams of its main process, from now on.
    async fn attach(&self, key: &ContainerKey) -> Result<Attached>;
}

/// The standard streams of a container; `None` where it has none.
#[derive(Default)]
#[non_exhaustive]
pub struct Attached {
    /// What it reads.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// What it writes.
    pub stdout: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// What it complains of.
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
    /// Opens the log file of a running container anew at its path, where it is no longer the file that was opened
    /// before, and returns once all further output goes there.
    async fn reopen(&self, key: &ContainerKey) -> Result<()>;
}

/// Measures what containers use (CRI `ContainerStats`, `ListContainerStats`).
#[async_trait]
pub trait Stats: Send + Sync {
    /// What a container uses now.
    async fn usage(&self, key: &ContainerKey) -> Result<Usage>;
}

/// What a container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// When it was measured.
    pub at: Timestamp,
    /// CPU time since it was started.
    pub cpu: Duration,
    /// Memory that cannot be taken from it, in bytes.
    pub memory_working_set_bytes: u64,
}

/// Has images (CRI `ImageService`).
#[async_trait]
pub trait Images: Send + Sync {
    /// All images at hand.
    async fn list(&self) -> Result<Vec<ImageInfo>>;

    /// The image of this name or id, if it is at hand.
    async fn status(&self, image: &str) -> Result<Option<ImageInfo>>;

    /// Fetches an image. Credentials are not handed on yet. Not bounded by a deadline: a pull takes as long as it
    /// takes, and is dropped when the pod goes.
    async fn pull(&self, image: &str) -> Result<ImageInfo>;

    /// Deletes an image. What is not there is a success.
    async fn remove(&self, image: &str) -> Result<()>;

    /// The folder of the host that holds the images, if it is not the folder of the containers. A kubelet removes unused
    /// images when the file system of this folder is full (CRI `ImageFsInfo`).
    fn dir(&self) -> Option<&Path> {
        None
    }
}

/// An image at hand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageInfo {
    /// Its id: what the API shows as `imageID`.
    pub id: String,
    /// The names it goes by, `NAME:TAG`.
    pub names: Vec<String>,
    /// Its size in bytes.
    pub size: u64,
    /// The numeric user its containers run as, if it says.
    pub uid: Option<i64>,
    /// It cannot be removed: a kubelet that frees disk space leaves it alone.
    pub pinned: bool,
}

impl ImageInfo {
    /// An image of which only the name is known, which is then its id.
    pub fn named(name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            id: name.clone(),
            names: vec![name],
            ..Self::default()
        }
    }
}

/// Says by itself when a container changed (CRI `GetContainerEvents`).
pub trait Events: Send + Sync {
    /// From now on, each container that ended, once or more often. An item is a reason to look, never data; a lost
    /// one costs time, nothing else.
    fn watch(&self) -> BoxStream<'static, ContainerKey>;
}
