//! Streams of containers: commands with their input and output, attached containers, forwarded ports.
//!
//! A runtime that serves CRI hands out URLs for these streams. The server behind the URL is a part of its own: a
//! [`StreamingServer`]. The runtime makes it an offer for each request (a [`RemoteCommand`] or a [`PortForwarder`]), gets
//! the URL, and returns it. When a client connects, the server runs the offer.
//!
//! The node's own server reaches the runtime through [`StreamingRuntime`].

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::PodKey;

/// The requested streams of a command or container (`remotecommand.Options`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// Its standard input.
    pub stdin: bool,
    /// Its standard output.
    pub stdout: bool,
    /// Its standard error. With a terminal, it is part of the standard output.
    pub stderr: bool,
    /// Whether a command gets a terminal. Attaching does not change whether a container has one.
    pub tty: bool,
}

/// The size of a terminal (`remotecommand.TerminalSize`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// The client's ends of the streams of a command or container. A stream that was not requested is `None`.
#[derive(Default)]
#[non_exhaustive]
pub struct ClientStreams {
    /// What the client sends. At its end, the command's input is closed; the other streams go on.
    pub stdin: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Where the standard output goes. A write waits while the client reads slowly. The client sees the end when it is shut
    /// down, or when the command ends.
    pub stdout: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Where the standard error goes. `None` with a terminal.
    pub stderr: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// The size of the client's terminal, once it is known and each time it changes. `None` without a terminal.
    pub terminal: Option<watch::Receiver<Option<TerminalSize>>>,
}

impl fmt::Debug for ClientStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStreams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .field("terminal", &self.terminal.is_some())
            .finish()
    }
}

/// Why a call that reaches into a container failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StreamError {
    /// What kind of failure it is. It decides the HTTP status.
    pub kind: StreamErrorKind,
    /// The message for the client.
    pub message: String,
}

/// The kinds of [`StreamError`]: the gRPC codes that the kubelet's server and the CRI streaming server tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamErrorKind {
    /// The pod or container does not exist (`NotFound`).
    NotFound,
    /// The request is not valid (`InvalidArgument`).
    InvalidArgument,
    /// Too many requests are open (`ResourceExhausted`). The client may retry.
    ResourceExhausted,
    /// The runtime cannot do it (`Unimplemented`).
    Unimplemented,
    /// The command did not end in time (`DeadlineExceeded`).
    DeadlineExceeded,
    /// Any other failure (`Unknown`).
    Other,
}

impl StreamError {
    /// An error of a kind.
    pub fn new(kind: StreamErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    /// [`StreamErrorKind::NotFound`]
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StreamErrorKind::NotFound, message)
    }

    /// [`StreamErrorKind::Other`]
    pub fn other(message: impl fmt::Display) -> Self {
        Self::new(StreamErrorKind::Other, message.to_string())
    }
}

/// A command to run in a container, or a container to attach to, once a client has connected.
#[async_trait]
pub trait RemoteCommand: Send {
    /// Runs it with these streams until it ends and all its output was written. Returns its exit code; 128+n if signal n
    /// ended it. An attached container has the exit code 0.
    ///
    /// # Errors
    ///
    /// If it could not be started. The client receives the message.
    ///
    /// # Cancel safety
    ///
    /// The server drops the call when the client is gone. A command must then be killed; a container runs on.
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError>;

    /// The command and its arguments, for the message that a client gets with an exit code that is not zero. By default
    /// nothing.
    fn command(&self) -> &[String] {
        &[]
    }
}

/// Connects to ports of a pod.
#[async_trait]
pub trait PortForwarder: Send + Sync {
    /// A connection to a TCP port of the pod.
    ///
    /// # Errors
    ///
    /// If nothing listens there. The client receives the message; its other connections go on.
    async fn connect(&self, port: u16) -> Result<Box<dyn ByteStream>, StreamError>;

    /// The pod's id or name, for the message that a client gets with an error. By default nothing.
    fn pod(&self) -> &str {
        ""
    }
}

/// Bytes in both directions, such as a TCP connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Serves the streams of a runtime at URLs (`streaming.Server` of `k8s.io/cri-streaming`).
///
/// An offer is for one client, and expires after a minute.
pub trait StreamingServer: Send + Sync {
    /// The URL at which a client reaches this command (`GetExec`, `GetAttach`).
    ///
    /// # Errors
    ///
    /// [`StreamErrorKind::ResourceExhausted`] if too many offers wait for their clients.
    fn offer_command(
        &self,
        kind: CommandKind,
        streams: StreamOptions,
        command: Box<dyn RemoteCommand>,
    ) -> Result<String, StreamError>;

    /// The URL at which a client reaches ports of a pod (`GetPortForward`). Without `ports`, the client names them.
    ///
    /// # Errors
    ///
    /// As for [`offer_command`](Self::offer_command).
    fn offer_port_forward(
        &self,
        ports: &[u16],
        forwarder: Box<dyn PortForwarder>,
    ) -> Result<String, StreamError>;
}

/// What a [`RemoteCommand`] is. It decides the path of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandKind {
    /// `/exec/TOKEN`
    Exec,
    /// `/attach/TOKEN`
    Attach,
}

/// What the node's server asks of a runtime to reach into its pods (`StreamingRuntime` and `CommandRunner` of
/// `pkg/kubelet/container`).
///
/// All calls may be dropped at any time.
#[async_trait]
pub trait StreamingRuntime: Send + Sync {
    /// The URL at which the runtime serves the streams of a command in a running container (`GetExec`).
    ///
    /// # Errors
    ///
    /// [`StreamErrorKind::Other`] if the container does not run, because the kubelet answers that with the status 500;
    /// else the runtime's error.
    async fn exec_url(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        streams: StreamOptions,
    ) -> Result<String, StreamError>;

    /// The URL at which the runtime serves the streams of a running container (`GetAttach`).
    ///
    /// # Errors
    ///
    /// As for [`exec_url`](Self::exec_url).
    async fn attach_url(
        &self,
        pod: &Pod,
        container: &str,
        streams: StreamOptions,
    ) -> Result<String, StreamError>;

    /// The URL at which the runtime forwards ports of a pod (`GetPortForward`). Without ports, the client names them.
    ///
    /// # Errors
    ///
    /// [`StreamErrorKind::Other`] if the pod does not run; else the runtime's error.
    async fn port_forward_url(&self, pod: &PodKey, ports: &[u16]) -> Result<String, StreamError>;

    /// Runs a command in a container to its end (`RunInContainer`). Returns its standard output and then its standard
    /// error. Zero means no timeout.
    ///
    /// # Errors
    ///
    /// As for [`exec_url`](Self::exec_url); [`StreamErrorKind::DeadlineExceeded`] after the timeout;
    /// [`StreamErrorKind::Other`] if the exit code is not zero.
    async fn run_in_container(
        &self,
        pod: &PodKey,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<Vec<u8>, StreamError>;

    /// Writes a checkpoint of a running container to a file (`CheckpointContainer`).
    ///
    /// # Errors
    ///
    /// As for [`exec_url`](Self::exec_url); [`StreamErrorKind::Unimplemented`] if the runtime cannot do it, which is the
    /// default.
    async fn checkpoint_container(
        &self,
        pod: &PodKey,
        container: &str,
        location: &std::path::Path,
        timeout: Duration,
    ) -> Result<(), StreamError> {
        let _ = (pod, container, location, timeout);
        let message = "the runtime does not support checkpoints";
        Err(StreamError::new(StreamErrorKind::Unimplemented, message))
    }
}
