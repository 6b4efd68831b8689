//! A sink that writes JSON lines.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, Error, PodExt, Result, StatusSink};
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

/// Writes one line of JSON for each changed status: `{"time":…,"namespace":…,"name":…,"uid":…,"status":{…}}`. A
/// `status` of `null` means that the pod is gone.
///
/// Lines are written completely and flushed. If a write is interrupted, its line is completed before the next one and
/// then repeated: a reader gets the latest status of each pod at least once.
/// one and then written once more: a reader sees the latest status of each pod, at least once.
#[derive(Debug)]
pub struct JsonLines<W> {
    output: Mutex<Output<W>>,
    clock: Clock,
}

#[derive(Debug)]
struct Output<W> {
    writer: W,
    /// The rest of the line that is being written.
    rest: Vec<u8>,
    written: usize,
}

impl<W: AsyncWrite + Send + Unpin> JsonLines<W> {
    /// Writes lines to `writer`, e.g. `tokio::io::stdout()`; `clock` gives their `time`.
    pub fn new(writer: W, clock: Clock) -> Self {
        Self {
            output: Mutex::new(Output {
                writer,
                rest: Vec::new(),
                written: 0,
            }),
            clock,
        }
    }

    /// Returns the writer.
    pub fn into_inner(self) -> W {
        self.output.into_inner().writer
    }

    async fn write(&self, pod: &Pod, status: Option<&ApiPodStatus>) -> Result<()> {
        let key = pod.key();
        let mut line = json!({
            "time": self.clock.now().to_string(),
            "namespace": &*key.namespace,
            "name": &*key.name,
            "uid": pod.uid_str(),
            "status": status,
        })
        .to_string()
        .into_bytes();
        line.push(b'\n');
        let mut output = self.output.lock().await;
        let result = async {
            output.write_rest().await?;
            output.rest = line;
            output.write_rest().await
        }
        .await;
        result.map_err(|error: io::Error| Error::StatusSink {
            pod: key,
            uid: pod.uid(),
            source: Arc::new(error),
        })
    }
}

impl JsonLines<tokio::io::Stdout> {
    /// Writes lines to the standard output.
    pub fn stdout() -> Self {
        Self::new(tokio::io::stdout(), Clock::system())
    }
}

impl<W> JsonLines<Blocking<W>> {
    /// Writes lines to a [`std::io::Write`] that never blocks for long, such as a file or a buffer.
    pub fn blocking(writer: W, clock: Clock) -> Self
    where
        W: io::Write + Send + Unpin,
    {
        Self::new(Blocking(writer), clock)
    }
}

impl<W: AsyncWrite + Unpin> Output<W> {
    /// Cancel safe: bytes that were written are not written again.
    async fn write_rest(&mut self) -> io::Result<()> {
        while self.written < self.rest.len() {
            let written = self.writer.write(&self.rest[self.written..]).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.written += written;
        }
        self.rest.clear();
        self.written = 0;
        self.writer.flush().await
    }
}

#[async_trait]
impl<W: AsyncWrite + Send + Unpin + 'static> StatusSink for JsonLines<W> {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        _: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        self.write(pod, Some(new)).await?;
        Ok(None)
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        self.write(pod, None).await
    }

    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        self.write(pod, None).await
    }
}

/// A [`std::io::Write`] as an [`AsyncWrite`] whose writes block; see [`JsonLines::blocking`].
#[derive(Debug)]
pub struct Blocking<W>(pub W);

impl<W: io::Write + Unpin> AsyncWrite for Blocking<W> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
