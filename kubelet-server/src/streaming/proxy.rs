//! Hands a client's streams on to the URL of a runtime, whatever protocol they are in.

use std::net::IpAddr;
use std::time::Duration;

use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tracing::debug;

use super::answer::Answer;
use super::client::{dial, is_odd};
use super::spdy::connection::Activity;
use crate::upgrade::is_upgrade;

const BUFFER: usize = 32 << 10;
/// Once one direction has ended, the other may be silent for so long.
const HALF_CLOSED_IDLE: Duration = Duration::from_secs(30);
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Hands a request for an upgrade on to `target`, and its answer back. After an upgrade, the session copies the bytes of both
/// directions, until both have ended or no byte came for `idle`; zero means never. Once one direction has ended, the other may
/// be silent for 30 seconds.
///
/// An error of the runtime is the answer to the client. The request must be one that a hyper server received.
///
/// # Cancel safety
///
/// The future and the session may be dropped at any time. Dropping them closes the connection to the runtime.
pub async fn proxy_upgrade<B>(
    mut request: Request<B>,
    target: &Uri,
    client: Option<IpAddr>,
    idle: Duration,
) -> Answer {
    if !is_upgrade(request.headers()) {
        return Answer::error(StatusCode::INTERNAL_SERVER_ERROR, "Upgrade request required");
    }
    let mut headers = request.headers().clone();
    forwarded_for(&mut headers, client);
    let dialed = match dial(target, request.method().clone(), headers).await {
        Ok(dialed) => dialed,
        Err(error) => return Answer::error(StatusCode::INTERNAL_SERVER_ERROR, error),
    };
    let status = dialed.response.status();
    if is_odd(status) {
        let message = format!("invalid upgrade response: status code {}", status.as_u16());
        return Answer::error(StatusCode::INTERNAL_SERVER_ERROR, message);
    }
    if status != StatusCode::SWITCHING_PROTOCOLS {
        return Answer::refused(dialed.collect().await);
    }
    let mut response = http::Response::new(crate::body::full(""));
    *response.status_mut() = status;
    *response.headers_mut() = dialed.response.headers().clone();
    let upgrade = hyper::upgrade::on(&mut request);
    let session = async move {
        let (backend, client) = tokio::join!(dialed.upgraded(), upgrade);
        match (backend, client) {
            (Some(backend), Ok(client)) => copy(hyper_util::rt::TokioIo::new(client), backend, idle).await,
            _ => debug!("the client or the runtime is gone before the streams began"),
        }
    };
    Answer {
        response,
        session: Some(session.boxed()),
    }
}

/// Adds the client's address to the addresses that the request came from.
fn forwarded_for(headers: &mut HeaderMap, client: Option<IpAddr>) {
    let Some(client) = client else { return };
    let earlier = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|v| v.to_str().ok());
    let all: Vec<String> = earlier.map(str::to_owned).chain([client.to_string()]).collect();
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Copies both directions.
pub(super) async fn copy(
    client: impl AsyncRead + AsyncWrite,
    backend: impl AsyncRead + AsyncWrite,
    idle: Duration,
) {
    let activity = Activity::new();
    let (client_reader, client_writer) = tokio::io::split(client);
    let (backend_reader, backend_writer) = tokio::io::split(backend);
    let up = to_end(client_reader, backend_writer, &activity);
    let down = to_end(backend_reader, client_writer, &activity);
    tokio::pin!(up, down);
    let idle = (!idle.is_zero()).then_some(idle);
    let half_closed = Some(idle.unwrap_or(HALF_CLOSED_IDLE).min(HALF_CLOSED_IDLE));
    tokio::select! {
        result = &mut up => if result.is_ok() {
            activity.note();
            tokio::select! { _ = down => {} () = activity.idle_for(half_closed) => {} }
        },
        result = &mut down => if result.is_ok() {
            activity.note();
            tokio::select! { _ = up => {} () = activity.idle_for(half_closed) => {} }
        },
        () = activity.idle_for(idle) => debug!("streams were idle for too long"),
    }
}

async fn to_end(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        buffer.clear();
        if (&mut from).take(BUFFER as u64).read_buf(&mut buffer).await? == 0 {
            return to.shutdown().await;
        }
        activity.note();
        to.write_all(&buffer).await?;
        to.flush().await?;
        activity.note();
    }
}
