//! Exec, attach and port-forward: checks the requests, and offers the runtime's capabilities at the streaming server.

use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::PodUid;
use kubelet_core::runtime::streaming::{
    ByteStream, ClientStreams, CommandKind, PortForwarder, RemoteCommand, StreamError, StreamErrorKind,
    StreamOptions, StreamingServer,
};

use super::records::SandboxEntry;
use super::{CriAdapter, Result};
use crate::error::Error;
use crate::v1;
use crate::verbs::{ContainerKey, ContainerRuntime, ErrorClass, RuntimeError};

impl CriAdapter {
    pub(super) async fn offer_exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse> {
        const CALL: &str = "Exec";
        let id = request.container_id;
        if self.inner.runtime.exec().is_none() {
            return Err(self.missing(CALL, &id, "streaming exec"));
        }
        let server = self.streaming(CALL, &id, "streaming exec")?;
        let streams = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        check(CALL, &id, streams)?;
        let entry = self.running(CALL, &id).await?;
        if request.cmd.is_empty() {
            return Err(Error::invalid_argument(CALL, id, "the command is empty"));
        }
        let command = Command {
            runtime: self.inner.runtime.clone(),
            key: entry.key.clone(),
            argv: request.cmd,
        };
        let url = server.offer_command(CommandKind::Exec, streams, Box::new(command));
        let url = url.map_err(|error| refused(CALL, &id, error))?;
        Ok(v1::ExecResponse { url })
    }

    pub(super) async fn offer_attach(&self, request: v1::AttachRequest) -> Result<v1::AttachResponse> {
        const CALL: &str = "Attach";
        let id = request.container_id;
        if self.inner.runtime.attach().is_none() {
            return Err(self.missing(CALL, &id, "attach"));
        }
        let server = self.streaming(CALL, &id, "a streaming server for attach")?;
        let streams = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        check(CALL, &id, streams)?;
        let entry = self.running(CALL, &id).await?;
        let attachment = Attachment {
            runtime: self.inner.runtime.clone(),
            key: entry.key.clone(),
        };
        let url = server.offer_command(CommandKind::Attach, streams, Box::new(attachment));
        let url = url.map_err(|error| refused(CALL, &id, error))?;
        Ok(v1::AttachResponse { url })
    }

    pub(super) async fn offer_port_forward(
        &self,
        request: v1::PortForwardRequest,
    ) -> Result<v1::PortForwardResponse> {
        const CALL: &str = "PortForward";
        let id = request.pod_sandbox_id;
        if self.inner.runtime.port_forward().is_none() {
            return Err(self.missing(CALL, &id, "port-forward"));
        }
        let server = self.streaming(CALL, &id, "a streaming server for port-forward")?;
        if id.is_empty() {
            return Err(Error::invalid_argument(
                CALL,
                id,
                "missing required pod_sandbox_id",
            ));
        }
        let ports: std::result::Result<Vec<u16>, i32> = request
            .port
            .iter()
            .map(|port| u16::try_from(*port).ok().filter(|port| *port > 0).ok_or(*port))
            .collect();
        let ports =
            ports.map_err(|port| Error::invalid_argument(CALL, &id, format!("{port} is not a port")))?;
        let sandbox = self.sandbox(CALL, &id).await?;
        if sandbox.is_stopped() {
            return Err(Error::failed_precondition(CALL, id, NOT_READY));
        }
        let forwarder = Forwarder {
            runtime: self.inner.runtime.clone(),
            sandbox,
        };
        let url = server.offer_port_forward(&ports, Box::new(forwarder));
        let url = url.map_err(|error| refused(CALL, &id, error))?;
        Ok(v1::PortForwardResponse { url })
    }

    fn streaming(&self, call: &'static str, id: &str, what: &str) -> Result<&Arc<dyn StreamingServer>> {
        let server = self.inner.streaming.as_ref();
        server.ok_or_else(|| self.missing(call, id, what))
    }
}

const NOT_READY: &str = "sandbox container is not running";

/// The checks of a CRI streaming server.
fn check(call: &'static str, id: &str, streams: StreamOptions) -> Result<()> {
    let invalid = |message: &str| Err(Error::invalid_argument(call, id, message));
    if id.is_empty() {
        return invalid("missing required container_id");
    }
    if streams.tty && streams.stderr {
        return invalid("tty and stderr cannot both be true");
    }
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return invalid("one of stdin, stdout, or stderr must be set");
    }
    Ok(())
}

/// A command that starts when the client connects.
struct Command {
    runtime: Arc<dyn ContainerRuntime>,
    key: ContainerKey,
    argv: Vec<String>,
}

#[async_trait]
impl RemoteCommand for Command {
    async fn run(self: Box<Self>, streams: ClientStreams) -> std::result::Result<i32, StreamError> {
        let Some(exec) = self.runtime.exec() else {
            return Err(StreamError::new(
                StreamErrorKind::Unimplemented,
                "the runtime has no exec",
            ));
        };
        exec.exec(&self.key, &self.argv, streams)
            .await
            .map_err(stream_error)
    }
}

/// A container to which the client attaches when it connects.
struct Attachment {
    runtime: Arc<dyn ContainerRuntime>,
    key: ContainerKey,
}

#[async_trait]
impl RemoteCommand for Attachment {
    async fn run(self: Box<Self>, streams: ClientStreams) -> std::result::Result<i32, StreamError> {
        let Some(attach) = self.runtime.attach() else {
            return Err(StreamError::new(
                StreamErrorKind::Unimplemented,
                "the runtime has no attach",
            ));
        };
        attach.attach(&self.key, streams).await.map_err(stream_error)?;
        Ok(0)
    }
}

/// The ports of a pod, as long as its sandbox is ready.
struct Forwarder {
    runtime: Arc<dyn ContainerRuntime>,
    sandbox: Arc<SandboxEntry>,
}

#[async_trait]
impl PortForwarder for Forwarder {
    async fn connect(&self, port: u16) -> std::result::Result<Box<dyn ByteStream>, StreamError> {
        if self.sandbox.is_stopped() {
            return Err(StreamError::other(NOT_READY));
        }
        let Some(forward) = self.runtime.port_forward() else {
            let message = "the runtime has no port-forward";
            return Err(StreamError::new(StreamErrorKind::Unimplemented, message));
        };
        let metadata = self.sandbox.config.metadata.as_ref();
        let uid = PodUid::from(metadata.map_or("", |metadata| &metadata.uid));
        forward.connect(&uid, port).await.map_err(stream_error)
    }
}

fn stream_error(error: RuntimeError) -> StreamError {
    let kind = match error.class {
        ErrorClass::Gone => StreamErrorKind::NotFound,
        ErrorClass::Permanent => StreamErrorKind::InvalidArgument,
        ErrorClass::Throttled => StreamErrorKind::ResourceExhausted,
        ErrorClass::Unsupported => StreamErrorKind::Unimplemented,
        ErrorClass::Transient => StreamErrorKind::Other,
    };
    StreamError::new(kind, error.to_string())
}

/// The streaming server did not take the offer.
fn refused(call: &'static str, id: &str, error: StreamError) -> Error {
    Error::call(error.kind.into(), call, id, error.message)
}
