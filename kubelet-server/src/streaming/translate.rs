//! Translates: a client speaks `v5.channel.k8s.io` over WebSocket, a runtime speaks SPDY.

use std::time::Duration;

use async_trait::async_trait;
use http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use kubelet_core::runtime::streaming::{
    ClientStreams, RemoteCommand, StreamError, StreamOptions, TerminalSize,
};
use metrics::counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

use super::answer::Answer;
use super::client::dial;
use super::command::{StreamTimeouts, serve};
use super::negotiate::{CHANNEL_V5, SPDY, STREAM_PROTOCOL};
use super::spdy::{Connection, Handle, Headers, Stream};
use super::status::Status;

/// What we offer a runtime. All have exit codes as text, but only the fourth says them in a way that can be read.
const PROTOCOLS: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];
/// So often a `PING` keeps the connection to the runtime open.
const PING: Duration = Duration::from_secs(5);
/// The longest status that a runtime may write.
const MAX_STATUS: u64 = 1 << 20;

/// Answers a request for the streams of a command or an attached container over WebSocket from the URL of a runtime, which is
/// asked for SPDY. See [`wants_close_signal`](super::wants_close_signal).
///
/// The request must be one that a hyper server received.
pub fn serve_translated<B>(
    request: Request<B>,
    target: Uri,
    options: StreamOptions,
    timeouts: StreamTimeouts,
) -> Answer {
    let options = StreamOptions {
        stderr: options.stderr && !options.tty,
        ..options
    };
    let command = Translated { target, options };
    let answer = serve(request, options, Box::new(command), timeouts, "", &[CHANNEL_V5]);
    if answer.session.is_none() {
        count(StatusCode::BAD_REQUEST);
    }
    answer
}

fn count(status: StatusCode) {
    counter!("apiserver_stream_translator_requests_total", "code" => status.as_u16().to_string())
        .increment(1);
}

/// A command whose streams are at the URL of a runtime.
struct Translated {
    target: Uri,
    options: StreamOptions,
}

#[async_trait]
impl RemoteCommand for Translated {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        let result = self.connect_and_run(streams).await;
        // An exit code comes from the container; it is no failure of the translation.
        count(if result.is_ok() {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        });
        result
    }
}

impl Translated {
    async fn connect_and_run(&self, streams: ClientStreams) -> Result<i32, StreamError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        for protocol in PROTOCOLS {
            headers.append(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
        }
        let dialed = dial(&self.target, Method::POST, headers)
            .await
            .map_err(StreamError::other)?;
        if dialed.response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let response = dialed.collect().await;
            let body = response
                .into_body()
                .collect()
                .await
                .map(|b| b.to_bytes())
                .unwrap_or_default();
            let text = String::from_utf8_lossy(&body);
            return Err(StreamError::other(format!(
                "unable to upgrade connection: {}",
                text.trim_end()
            )));
        }
        let protocol = dialed
            .response
            .headers()
            .get(STREAM_PROTOCOL)
            .and_then(|v| v.to_str().ok());
        let protocol = protocol.unwrap_or_default().to_owned();
        let Some(io) = dialed.upgraded().await else {
            return Err(StreamError::other(
                "unable to upgrade connection: the runtime is gone",
            ));
        };
        let (connection, handle) = Connection::client(io);
        let connection = connection.ping_every(PING);
        let mut work = Box::pin(self.exchange(&handle, streams, &protocol));
        let result = tokio::select! {
            result = &mut work => result,
            _ = connection.run() => {
                // What the runtime sent before it closed the connection is still there.
                return work.await;
            }
        };
        handle.close();
        result
    }

    /// Opens the streams, and copies until the runtime has written the status and ended the outputs.
    async fn exchange(
        &self,
        handle: &Handle,
        streams: ClientStreams,
        protocol: &str,
    ) -> Result<i32, StreamError> {
        let resizes = ["v4.channel.k8s.io", "v3.channel.k8s.io"].contains(&protocol);
        let error = open(handle, true, "error").await?;
        let stdin = open(handle, self.options.stdin, "stdin").await?;
        let stdout = open(handle, self.options.stdout, "stdout").await?;
        let stderr = open(handle, self.options.stderr, "stderr").await?;
        let resize = open(handle, self.options.tty && resizes, "resize").await?;
        let outputs = async {
            let (text, (), ()) = tokio::join!(
                read_status(error),
                copy_output(stdout, streams.stdout),
                copy_output(stderr, streams.stderr),
            );
            text
        };
        let inputs = async {
            tokio::join!(
                copy_input(streams.stdin, stdin),
                send_sizes(streams.terminal, resize)
            );
            std::future::pending::<()>().await;
        };
        let text = tokio::select! {
            text = outputs => text,
            () = inputs => Vec::new(),
        };
        if protocol != "v4.channel.k8s.io" {
            return match text.is_empty() {
                true => Ok(0),
                false => Err(StreamError::other(format!(
                    "error executing remote command: {}",
                    String::from_utf8_lossy(&text)
                ))),
            };
        }
        if text.is_empty() {
            return Ok(0);
        }
        let status: Status = serde_json::from_slice(&text).map_err(|error| {
            let text = String::from_utf8_lossy(&text);
            StreamError::other(format!("error stream protocol error: {error} in {text:?}"))
        })?;
        status.into_result()
    }
}

async fn open(handle: &Handle, wanted: bool, kind: &str) -> Result<Option<Stream>, StreamError> {
    if !wanted {
        return Ok(None);
    }
    let Some(stream) = handle.open(Headers::new().with("streamType", kind)) else {
        return Err(StreamError::other(format!(
            "open the {kind} stream: the runtime is gone"
        )));
    };
    match stream.replied().await {
        true => Ok(Some(stream)),
        false => Err(StreamError::other(format!(
            "the runtime refused the {kind} stream"
        ))),
    }
}

async fn read_status(stream: Option<Stream>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(stream) = stream {
        let _ = stream.take(MAX_STATUS).read_to_end(&mut text).await;
    }
    text
}

async fn copy_output(from: Option<Stream>, to: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    }
}

async fn copy_input(from: Option<Box<dyn AsyncRead + Send + Unpin>>, to: Option<Stream>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
        // Held until the streams end: dropping it would throw away what the runtime sends on it.
        std::future::pending::<()>().await;
    }
}

async fn send_sizes(sizes: Option<watch::Receiver<Option<TerminalSize>>>, to: Option<Stream>) {
    let (Some(mut sizes), Some(mut to)) = (sizes, to) else {
        return;
    };
    loop {
        let size = *sizes.borrow_and_update();
        if let Some(TerminalSize { width, height }) = size {
            let text = format!("{{\"Width\":{width},\"Height\":{height}}}\n");
            if to.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
        if sizes.changed().await.is_err() {
            return;
        }
    }
}
