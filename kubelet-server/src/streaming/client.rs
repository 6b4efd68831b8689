//! The client's end towards the URL that a runtime handed out.

use std::pin::pin;
use std::time::Duration;

use crate::body::{self, Body};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// So long a runtime may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// So long a runtime may take to answer. It answers before it starts anything.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// So long it may take to send the body of an error, and so long the body may be.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_BODY: usize = 1 << 20;

/// Why a runtime's streaming URL gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("error dialing backend: {0}")]
    Connect(std::io::Error),
    #[error("error dialing backend: the URL {0} is not of plain HTTP")]
    Url(Uri),
    #[error("error sending request: {0}")]
    Request(hyper::Error),
    #[error("error dialing backend: the runtime's streaming server did not answer in time")]
    Timeout,
}

/// A runtime's answer. Its body, or its upgrade, comes only while `connection` runs.
pub(super) struct Dialed {
    pub(super) response: Response<Incoming>,
    pub(super) connection: BoxFuture<'static, ()>,
}

/// Sends a request for an upgrade.
pub(super) async fn dial(target: &Uri, method: Method, mut headers: HeaderMap) -> Result<Dialed, DialError> {
    let authority = match (target.scheme_str(), target.authority()) {
        (Some("http") | None, Some(authority)) => authority,
        _ => return Err(DialError::Url(target.clone())),
    };
    let io = timeout(CONNECT_TIMEOUT, TcpStream::connect(address(authority)))
        .await
        .map_err(|_| DialError::Timeout)?
        .map_err(DialError::Connect)?;
    let _ = io.set_nodelay(true);
    // There is no body, whatever the client announced.
    for name in [
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::EXPECT,
        header::TE,
        header::TRAILER,
    ] {
        headers.remove(name);
    }
    if method == Method::POST {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(header::HOST, host);
    }
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(body::full(""));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from(path).map_err(|_| DialError::Url(target.clone()))?;
    *request.headers_mut() = headers;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .title_case_headers(true)
        .handshake::<_, Body>(TokioIo::new(io))
        .await
        .map_err(DialError::Request)?;
    let mut connection = connection.with_upgrades().map(|_| ()).boxed();
    let mut ended = false;
    let answered = async {
        let mut answer = pin!(sender.send_request(request));
        tokio::select! {
            biased;
            response = &mut answer => response,
            () = &mut connection => {
                ended = true;
                answer.await
            }
        }
    };
    let response = timeout(ANSWER_TIMEOUT, answered)
        .await
        .map_err(|_| DialError::Timeout)?;
    let response = response.map_err(DialError::Request)?;
    let connection = async move {
        if !ended {
            connection.await;
        }
        // Without the sender, the connection would end before the body is there.
        drop(sender);
    };
    Ok(Dialed {
        response,
        connection: connection.boxed(),
    })
}

impl Dialed {
    /// An answer that is no upgrade, with its whole body.
    pub(super) async fn collect(self) -> Response<Body> {
        let (mut parts, body) = self.response.into_parts();
        let collect = async {
            let mut body = pin!(Limited::new(body, MAX_BODY).collect());
            let body = tokio::select! {
                biased;
                body = &mut body => body,
                () = self.connection => body.await,
            };
            body.map(http_body_util::Collected::to_bytes).unwrap_or_default()
        };
        let body = timeout(BODY_TIMEOUT, collect).await.unwrap_or_default();
        for name in [
            header::CONNECTION,
            header::TRANSFER_ENCODING,
            header::CONTENT_LENGTH,
        ] {
            parts.headers.remove(name);
        }
        Response::from_parts(parts, body::full(body))
    }

    /// The bytes of an upgraded connection.
    pub(super) async fn upgraded(self) -> Option<TokioIo<Upgraded>> {
        let (upgraded, ()) = tokio::join!(hyper::upgrade::on(self.response), self.connection);
        upgraded.ok().map(TokioIo::new)
    }
}

/// Whether a runtime's answer is a mistake: neither an upgrade nor an error.
pub(super) fn is_odd(status: StatusCode) -> bool {
    status != StatusCode::SWITCHING_PROTOCOLS && status.as_u16() < 400
}

fn address(authority: &Authority) -> String {
    match authority.port() {
        Some(_) => authority.as_str().to_owned(),
        None => format!("{}:80", authority.host()),
    }
}
