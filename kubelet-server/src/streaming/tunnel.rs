//! A tunnel: a client speaks SPDY in the messages of a WebSocket, a runtime speaks it plainly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::{FutureExt, Sink, Stream};
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use metrics::counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::debug;

use super::answer::Answer;
use super::client::{dial, is_odd};
use super::negotiate::{self, SPDY, STREAM_PROTOCOL, TUNNEL_PREFIX};
use super::proxy;
use super::websocket::socket;

/// Answers a request for a tunnel (`SPDY/3.1+portforward.k8s.io`) from the URL of a runtime. See
/// [`wants_tunnel`](negotiate::wants_tunnel). The tunnel ends when no byte came for `idle`; zero means never.
///
/// The request must be one that a hyper server received.
///
/// # Cancel safety
///
/// The future and the session may be dropped at any time. Dropping them closes the connection to the runtime.
pub async fn serve_tunnel<B>(mut request: Request<B>, target: &Uri, idle: Duration) -> Answer {
    let protocols: Vec<String> = negotiate::tunnel_protocols(request.headers())
        .into_iter()
        .map(str::to_owned)
        .collect();
    let key = request
        .headers()
        .get(SEC_WEBSOCKET_KEY)
        .cloned()
        .filter(|key| !key.is_empty());
    let (Some(key), false, &Method::GET) = (key, protocols.is_empty(), request.method()) else {
        count(StatusCode::BAD_REQUEST);
        let message = "unable to upgrade: no tunneling spdy protocols provided";
        return Answer::error(StatusCode::BAD_REQUEST, message);
    };
    let headers = spdy_headers(request.headers(), &protocols);
    let dialed = match dial(target, Method::GET, headers).await {
        Ok(dialed) => dialed,
        Err(error) => {
            count(StatusCode::INTERNAL_SERVER_ERROR);
            return Answer::error(StatusCode::INTERNAL_SERVER_ERROR, error);
        }
    };
    let status = dialed.response.status();
    if is_odd(status) {
        count(StatusCode::INTERNAL_SERVER_ERROR);
        let message = format!("invalid upgrade response: status code {}", status.as_u16());
        return Answer::error(StatusCode::INTERNAL_SERVER_ERROR, message);
    }
    count(status);
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Answer::refused(dialed.collect().await);
    }
    let chosen = dialed
        .response
        .headers()
        .get(STREAM_PROTOCOL)
        .and_then(|v| v.to_str().ok());
    let chosen = chosen
        .map(|protocol| format!("{TUNNEL_PREFIX}{protocol}"))
        .unwrap_or_default();
    let response = negotiate::websocket_response(&key, &chosen);
    let upgrade = hyper::upgrade::on(&mut request);
    let session = async move {
        let (backend, client) = tokio::join!(dialed.upgraded(), upgrade);
        let (Some(backend), Ok(client)) = (backend, client) else {
            return debug!("the client or the runtime is gone before the tunnel began");
        };
        let socket = socket::accept(hyper_util::rt::TokioIo::new(client)).await;
        proxy::copy(
            Messages {
                socket,
                rest: Bytes::new(),
            },
            backend,
            idle,
        )
        .await;
    };
    Answer {
        response,
        session: Some(session.boxed()),
    }
}

fn count(status: StatusCode) {
    counter!("apiserver_stream_tunnel_requests_total", "code" => status.as_u16().to_string()).increment(1);
}

/// The headers of the request for plain SPDY.
fn spdy_headers(headers: &HeaderMap, protocols: &[String]) -> HeaderMap {
    let mut headers: HeaderMap = headers
        .iter()
        .filter(|(name, _)| !name.as_str().starts_with("sec-websocket-"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY));
    headers.remove(STREAM_PROTOCOL);
    for protocol in protocols {
        if let Ok(value) = HeaderValue::from_str(protocol) {
            headers.append(STREAM_PROTOCOL, value);
        }
    }
    headers
}

/// The bytes of binary messages, whose borders mean nothing.
struct Messages<T> {
    socket: WebSocketStream<T>,
    rest: Bytes,
}

fn broken(error: Error) -> std::io::Error {
    match error {
        Error::Io(error) => error,
        other => std::io::Error::other(other),
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Messages<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(data))) => self.rest = data,
                Some(Ok(Message::Text(_))) => {
                    return Poll::Ready(Err(std::io::Error::other("the tunnel got a text message")));
                }
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed)) | None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Messages<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(broken)?;
        let message = Message::Binary(Bytes::copy_from_slice(data));
        Pin::new(&mut self.socket).start_send(message).map_err(broken)?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match ready!(Pin::new(&mut self.socket).poll_close(context)) {
            Ok(()) | Err(Error::ConnectionClosed) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(broken(error))),
        }
    }
}
