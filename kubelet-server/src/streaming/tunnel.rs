//! A tunnel: a client speaks SPDY in the messages of a WebSocket, a runtime speaks it plainly.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::FutureExt;
use http::header::{CONNECTION, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use metrics::counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tracing::debug;

use super::answer::Answer;
use super::client::{dial, is_odd};
use super::negotiate::{self, SPDY, STREAM_PROTOCOL, TUNNEL_PREFIX};
use super::proxy;
use super::websocket::frame::{Decoder, NORMAL, Piece};
use super::websocket::io::{self, Incoming, Outgoing, ReadError};
use super::websocket::socket;

/// So many bytes of answers to pings wait until the client reads.
const MAX_ANSWERS: usize = 4 << 10;

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
        let client = Messages::new(hyper_util::rt::TokioIo::new(client));
        proxy::copy(client, backend, idle).await;
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

/// The bytes of messages, whose borders mean nothing.
struct Messages<T> {
    incoming: Incoming<ReadHalf<T>>,
    outgoing: Outgoing<WriteHalf<T>>,
    rest: Bytes,
    /// A close frame was sent, or is to be.
    closed: bool,
}

impl<T: AsyncRead + AsyncWrite> Messages<T> {
    fn new(io: T) -> Self
    where
        T: Unpin,
    {
        let (reader, writer) = tokio::io::split(io);
        Self {
            // As in the reference, a message may be of any length: the frames of SPDY within have the limits.
            incoming: Incoming::new(reader, Decoder::new(None)),
            outgoing: Outgoing::new(writer),
            rest: Bytes::new(),
            closed: false,
        }
    }

    /// Says goodbye, as far as the client takes it.
    fn close(&mut self, code: u16, context: &mut Context<'_>) {
        if !std::mem::replace(&mut self.closed, true) && self.outgoing.push_close(code).is_ok() {
            let _unsent = self.outgoing.poll_flush(context);
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Messages<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.rest.is_empty() {
            if self.outgoing.unsent() > MAX_ANSWERS {
                ready!(self.outgoing.poll_flush(context))?;
            }
            match ready!(self.incoming.poll_next(context)) {
                Ok(Some(Piece::Data { text: true, .. })) => {
                    return Poll::Ready(Err(std::io::Error::other("the tunnel got a text message")));
                }
                Ok(Some(Piece::Data { data, .. })) => self.rest = data,
                Ok(Some(Piece::Ping(data))) => {
                    self.outgoing.push(io::PONG, &data)?;
                    let _unsent = self.outgoing.poll_flush(context)?;
                }
                Ok(Some(Piece::Pong)) => {}
                Ok(Some(Piece::Close(code))) => {
                    self.close(code.unwrap_or(NORMAL), context);
                    return Poll::Ready(Ok(()));
                }
                Ok(None) => return Poll::Ready(Ok(())),
                Err(error) => {
                    socket::log(&error);
                    return Poll::Ready(Err(match error {
                        ReadError::Io(error) => error,
                        ReadError::Frame(error) => {
                            self.close(error.close_code(), context);
                            std::io::Error::other(error)
                        }
                    }));
                }
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
        ready!(self.outgoing.poll_flush(context))?;
        if self.closed {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        self.outgoing.push(io::BINARY, data)?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.outgoing.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.close(NORMAL, context);
        self.outgoing.poll_flush(context)
    }
}
