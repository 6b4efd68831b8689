//! What a module writes, as lines of the container's log, and the input that it reads.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use kubelet_cri::verbs::{ContainerLog, LogStream};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// How much a module may write at once.
const PERMIT: usize = 64 * 1024;

/// The log of a container. Both streams write to it.
#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<File>>);

struct File {
    /// `None`: the output is discarded.
    log: Option<ContainerLog>,
    failed: bool,
}

impl Log {
    pub(crate) fn new(log: Option<ContainerLog>) -> Self {
        Self(Arc::new(Mutex::new(File { log, failed: false })))
    }

    pub(crate) fn stream(&self, stream: LogStream) -> Output {
        Output { log: self.clone(), stream }
    }

    /// After a rotation.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        self.0.lock().log.as_mut().map_or(Ok(()), ContainerLog::reopen)
    }

    /// When the module has ended.
    pub(crate) fn end(&self) {
        self.put(ContainerLog::end);
    }

    /// A disk that is full must not end the module. It is reported once, until it works again.
    fn put(&self, put: impl FnOnce(&mut ContainerLog) -> io::Result<()>) {
        let file = &mut *self.0.lock();
        let written = file.log.as_mut().map_or(Ok(()), put);
        if let (Err(error), false) = (&written, file.failed) {
            tracing::warn!(%error, "cannot write a container log, output is lost");
        }
        file.failed = written.is_err();
    }
}

/// The standard output or the standard error of a module. What is written is in the file at once.
pub(crate) struct Output {
    log: Log,
    stream: LogStream,
}

impl Output {
    fn put(&self, bytes: &[u8]) {
        self.log.put(|log| log.write(self.stream, bytes));
    }

    fn again(&self) -> Self {
        self.log.stream(self.stream)
    }
}

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.again())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.again())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.put(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(PERMIT)
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.put(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The standard input of a container with `stdin: true`: it is empty, and ends when the container is asked to stop.
pub(crate) struct Input(pub(crate) CancellationToken);

impl IsTerminal for Input {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Input {
    fn async_stream(&self) -> Box<dyn AsyncRead + Send + Sync> {
        Box::new(UntilStop(Box::pin(self.0.clone().cancelled_owned())))
    }
}

struct UntilStop(Pin<Box<WaitForCancellationFutureOwned>>);

impl AsyncRead for UntilStop {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        _buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}
