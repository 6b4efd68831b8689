//! Exec, attach and port-forward through a streaming server.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::runtime::streaming::{
    ByteStream, ClientStreams, CommandKind, PortForwarder, RemoteCommand, StreamError, StreamOptions,
    StreamingServer,
};
use kubelet_cri::{Error, v1};
use tokio::io::{AsyncWrite, AsyncWriteExt, duplex, sink, split};

use super::{Call, MemoryCri};

type Result<T> = std::result::Result<T, Error>;

/// Where the streams of a runtime are served.
#[derive(Clone)]
pub(super) enum Streaming {
    /// At this URL, by the test.
    At(String),
    /// By this server.
    By(Arc<dyn StreamingServer>),
}

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(url) => f.debug_tuple("At").field(url).finish(),
            Self::By(_) => f.write_str("By"),
        }
    }
}

impl MemoryCri {
    pub(super) fn exec_url(&self, request: &v1::ExecRequest) -> Result<String> {
        let (call, id) = (Call::Exec, &request.container_id);
        let streams = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        self.stream_url(call, "exec", id, |server| {
            let command = Command {
                runtime: self.clone(),
                request: v1::ExecSyncRequest {
                    container_id: id.clone(),
                    cmd: request.cmd.clone(),
                    timeout: 0,
                },
            };
            server.offer_command(CommandKind::Exec, streams, Box::new(command))
        })
    }

    pub(super) fn attach_url(&self, request: &v1::AttachRequest) -> Result<String> {
        let (call, id) = (Call::Attach, &request.container_id);
        let streams = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        self.stream_url(call, "attach", id, |server| {
            let attachment = Attachment {
                runtime: self.clone(),
                container_id: id.clone(),
            };
            server.offer_command(CommandKind::Attach, streams, Box::new(attachment))
        })
    }

    pub(super) fn port_forward_url(&self, request: &v1::PortForwardRequest) -> Result<String> {
        let (call, id) = (Call::PortForward, &request.pod_sandbox_id);
        let ports = request.port.iter().filter_map(|port| u16::try_from(*port).ok());
        let ports: Vec<u16> = ports.collect();
        self.stream_url(call, "portforward", id, |server| {
            server.offer_port_forward(&ports, Box::new(Echo))
        })
    }
}

/// A command with a scripted reply.
struct Command {
    runtime: MemoryCri,
    request: v1::ExecSyncRequest,
}

#[async_trait]
impl RemoteCommand for Command {
    async fn run(self: Box<Self>, streams: ClientStreams) -> std::result::Result<i32, StreamError> {
        let (mut stdout, mut stderr) = (streams.stdout, streams.stderr);
        let in_terminal = streams.terminal.is_some();
        let run = async {
            let reply = self.runtime.exec_in(&self.request).await;
            let reply = reply.map_err(|error| stream_error(&error))?;
            write(&mut stdout, &reply.stdout).await;
            let stderr = if in_terminal { &mut stdout } else { &mut stderr };
            write(stderr, &reply.stderr).await;
            Ok(reply.exit_code)
        };
        with_input(streams.stdin, run).await
    }
}

/// A container that runs.
struct Attachment {
    runtime: MemoryCri,
    container_id: String,
}

#[async_trait]
impl RemoteCommand for Attachment {
    async fn run(self: Box<Self>, streams: ClientStreams) -> std::result::Result<i32, StreamError> {
        let run = async {
            let ended = self.runtime.container_end(&self.container_id).await;
            ended.map(|()| 0).map_err(|error| stream_error(&error))
        };
        with_input(streams.stdin, run).await
    }
}

/// A port that returns what it gets.
struct Echo;

#[async_trait]
impl PortForwarder for Echo {
    async fn connect(&self, _port: u16) -> std::result::Result<Box<dyn ByteStream>, StreamError> {
        let (ours, theirs) = duplex(16 * 1024);
        // The task ends with the client's end.
        tokio::spawn(async move {
            let (mut from, mut to) = split(ours);
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        });
        Ok(Box::new(theirs))
    }
}

/// Reads and drops the input while it runs.
async fn with_input<T>(
    input: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>,
    run: impl Future<Output = T>,
) -> T {
    let drained = async {
        if let Some(mut input) = input {
            let _ = tokio::io::copy(&mut input, &mut sink()).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        result = run => result,
        result = drained => result,
    }
}

/// An error means that the client is gone.
async fn write(client: &mut Option<Box<dyn AsyncWrite + Send + Unpin>>, bytes: &[u8]) {
    if let Some(client) = client {
        let _ = client.write_all(bytes).await;
        let _ = client.flush().await;
    }
}

pub(super) fn stream_error(error: &Error) -> StreamError {
    StreamError::new(error.code().into(), error.message())
}
