//! HTTP for probes and life cycle hooks: one GET, its redirects, the first 10 KiB of the answer (`pkg/probe/http`).

mod request;
mod tls;
mod url;

use std::convert::Infallible;
use std::error::Error as _;
use std::future::Future;
use std::io;
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, HOST, HeaderName, LOCATION, REFERER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use kubelet_core::{ProbeOutcome, ProbeResult, ProbeTarget};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

pub(crate) use self::request::HttpRequest;
use self::url::Url;
use super::dial::{dial, os_error};

pub(crate) const PROBE_USER_AGENT: &str = "kube-probe/1.36";
pub(crate) const LIFECYCLE_USER_AGENT: &str = "kube-lifecycle/1.36";

/// How much of an answer is read (`maxRespBodyLength`).
const MAX_BODY_LENGTH: usize = 10 << 10;
/// How many requests one probe makes at most (`RedirectChecker`).
const MAX_REQUESTS: usize = 10;

/// Which redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// Redirects to the host of the first request; any other redirect counts as the answer.
    SameHost,
    Any,
}

/// Makes requests, each on its own connection.
#[derive(Clone)]
pub(crate) struct HttpClient {
    tls: Option<TlsConnector>,
    redirects: Redirects,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The beginning of the body, or the read error.
    pub(crate) body: Result<Vec<u8>, String>,
}

/// The error of a request, in the words of Go's `net/http`.
#[derive(Debug)]
pub(crate) struct NoAnswer {
    pub(crate) message: String,
    /// Whether the server answered an HTTPS request with HTTP.
    pub(crate) spoke_http: bool,
}

impl From<String> for NoAnswer {
    fn from(message: String) -> Self {
        Self {
            message,
            spoke_http: false,
        }
    }
}

/// The result of one request.
struct Exchange {
    answer: Answer,
    next: Option<Next>,
}

/// The target of a redirect.
struct Next {
    url: Url,
    keep_host: bool,
}

impl HttpClient {
    pub(crate) fn new(redirects: Redirects) -> Self {
        Self {
            tls: tls::config().map(|config| TlsConnector::from(Arc::new(config))),
            redirects,
        }
    }

    /// Probes a container: 200 to 399 is success (`DoHTTPProbe`).
    pub(super) async fn probe(&self, action: &HTTPGetAction, target: &ProbeTarget) -> ProbeOutcome {
        let Some(container) = target.container() else {
            return super::missing_handler(target);
        };
        let request = HttpRequest::new(action, container, target.pod_ip(), PROBE_USER_AGENT);
        let request = match request {
            Ok(request) => request,
            Err(error) => return ProbeOutcome::unknown(error),
        };
        let answer = match self.get(&request, Some(Instant::now() + target.timeout())).await {
            Ok(answer) => answer,
            Err(error) => return ProbeOutcome::failure(error.message),
        };
        let body = match &answer.body {
            Ok(body) => String::from_utf8_lossy(body),
            Err(error) => {
                return ProbeOutcome::Errored {
                    result: ProbeResult::Failure,
                    error: error.clone(),
                };
            }
        };
        match answer.status.as_u16() {
            200..=299 => ProbeOutcome::Success,
            300..=399 => ProbeOutcome::Warning {
                output: format!("Probe terminated redirects, Response body: {body}"),
            },
            status => ProbeOutcome::failure(format!("HTTP probe failed with statuscode: {status}")),
        }
    }

    /// Makes the request and follows its redirects.
    pub(crate) async fn get(
        &self,
        request: &HttpRequest,
        deadline: Option<Instant>,
    ) -> Result<Answer, NoAnswer> {
        let mut request = request.clone();
        let first_host = request.url.host.clone();
        let mut made = 0;
        loop {
            made += 1;
            let get = within(deadline, self.exchange(&request, deadline, &first_host));
            let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
            let about = |message: &str| format!("Get \"{}\": {message}", request.url);
            let exchange = get
                .await
                .unwrap_or_else(|| Err(NoAnswer::from(late.to_owned())))
                .map_err(|error| NoAnswer {
                    message: about(&error.message),
                    ..error
                })?;
            let Some(next) = exchange.next else {
                return Ok(exchange.answer);
            };
            if made == MAX_REQUESTS {
                return Err(about("stopped after 10 redirects").into());
            }
            request.redirect(next, &first_host);
        }
    }

    /// Makes one request. Reads the answer unless it is a redirect to follow.
    async fn exchange(
        &self,
        request: &HttpRequest,
        deadline: Option<Instant>,
        first_host: &str,
    ) -> Result<Exchange, NoAnswer> {
        if let Some(invalid) = &request.invalid {
            return Err(invalid.clone().into());
        }
        let url = &request.url;
        let secure = match url.scheme.as_str() {
            "http" => false,
            "https" => true,
            other => return Err(format!("unsupported protocol scheme {other:?}").into()),
        };
        let stream = dial(&url.host, url.port()).await?;
        let route = match (stream.local_addr(), stream.peer_addr()) {
            (Ok(from), Ok(to)) => format!("{from}->{to}"),
            _ => url.authority(),
        };
        let next = |status, headers: &HeaderMap| self.next(url, status, headers, first_host);
        if !secure {
            return converse(stream, request, deadline, &route, next).await;
        }
        let tls = self
            .tls
            .as_ref()
            .ok_or_else(|| "tls: no TLS provider is available".to_owned())?;
        let host = ServerName::try_from(url.host.clone()).map_err(|error| format!("tls: {error}"))?;
        let stream = tls
            .connect(host, stream)
            .await
            .map_err(|error| tls_error(&error, &route))?;
        converse(stream, request, deadline, &route, next).await
    }

    /// The target of a redirect, if it is to be followed.
    fn next(
        &self,
        url: &Url,
        status: StatusCode,
        headers: &HeaderMap,
        first_host: &str,
    ) -> Result<Option<Next>, String> {
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let Some(location) = location.filter(|location| !location.is_empty()) else {
            return Ok(None);
        };
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(next) = url.join(location) else {
            return Err(format!("failed to parse Location header {location:?}"));
        };
        if self.redirects == Redirects::SameHost && next.host != first_host {
            return Ok(None);
        }
        Ok(Some(Next {
            url: next,
            keep_host: !Url::is_absolute(location),
        }))
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient")
            .field("redirects", &self.redirects)
            .finish_non_exhaustive()
    }
}

impl HttpRequest {
    /// The request that follows a redirect, with the headers that Go's client copies.
    fn redirect(&mut self, next: Next, first_host: &str) {
        let from_secure = self.url.scheme == "https" && next.url.scheme == "http";
        if !from_secure
            && !self.headers.contains_key(REFERER)
            && let Ok(referer) = HeaderValue::from_str(&self.url.to_string())
        {
            self.headers.insert(REFERER, referer);
        }
        let host = &next.url.host;
        let trusted = host == first_host || host.ends_with(&format!(".{first_host}"));
        if !trusted {
            for secret in [
                AUTHORIZATION,
                WWW_AUTHENTICATE,
                COOKIE,
                HeaderName::from_static("cookie2"),
            ] {
                self.headers.remove(secret);
            }
        }
        if !next.keep_host {
            self.host = None;
        }
        self.url = next.url;
    }
}

/// `None` after a timeout.
async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// Sends the request on a connection and reads the answer. The connection ends with it.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    request: &HttpRequest,
    deadline: Option<Instant>,
    route: &str,
    next: impl Fn(StatusCode, &HeaderMap) -> Result<Option<Next>, String>,
) -> Result<Exchange, NoAnswer> {
    let message = wire_request(request)?;
    let mut builder = http1::Builder::new();
    builder.title_case_headers(true);
    let connected = builder.handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| hyper_error(&error, route))?;
    let talk = async {
        let sent = sender.send_request(message).await;
        let response = sent.map_err(|error| hyper_error(&error, route))?;
        let (parts, body) = response.into_parts();
        let next = next(parts.status, &parts.headers)?;
        let body = match next {
            Some(_) => Ok(Vec::new()),
            None => read_body(body, deadline, route).await,
        };
        let answer = Answer {
            status: parts.status,
            body,
        };
        Ok(Exchange { answer, next })
    };
    // The request returns the errors of the connection as well.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        biased;
        exchange = talk => exchange,
        never = drive => match never {},
    }
}

fn wire_request(request: &HttpRequest) -> Result<Request<Empty<Bytes>>, String> {
    let mut message = Request::new(Empty::new());
    *message.method_mut() = Method::GET;
    *message.uri_mut() = request
        .url
        .request_target()
        .parse()
        .map_err(|error| format!("invalid URL: {error}"))?;
    let headers = message.headers_mut();
    let host = match &request.host {
        Some(host) => host.clone(),
        None => HeaderValue::from_str(&request.url.authority())
            .map_err(|_| "http: invalid Host header".to_owned())?,
    };
    headers.insert(HOST, host);
    headers.extend(request.headers.clone());
    headers.append(CONNECTION, HeaderValue::from_static("close"));
    Ok(message)
}

/// The beginning of the body.
async fn read_body(mut body: Incoming, deadline: Option<Instant>, route: &str) -> Result<Vec<u8>, String> {
    let mut read = Vec::new();
    let whole = within(deadline, async {
        while read.len() < MAX_BODY_LENGTH
            && let Some(frame) = body.frame().await
        {
            if let Ok(data) = frame.map_err(|error| body_error(&error, route))?.into_data() {
                read.extend_from_slice(&data);
            }
        }
        Ok(())
    });
    match whole.await {
        Some(Ok(())) => {
            read.truncate(MAX_BODY_LENGTH);
            Ok(read)
        }
        Some(Err(error)) => Err(error),
        None => Err(
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)".into(),
        ),
    }
}

fn body_error(error: &hyper::Error, route: &str) -> String {
    match error.is_incomplete_message() || error.is_body_write_aborted() {
        true => "unexpected EOF".to_owned(),
        false => hyper_error(error, route),
    }
}

/// Go's error for a broken connection.
fn hyper_error(error: &hyper::Error, route: &str) -> String {
    let io = error
        .source()
        .and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(io) = io {
        return match io.kind() {
            io::ErrorKind::UnexpectedEof => "unexpected EOF".to_owned(),
            _ => format!("read tcp {route}: read: {}", os_error(io)),
        };
    }
    match error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        true => "EOF".to_owned(),
        false => format!("net/http: HTTP/1.x transport connection broken: {error}"),
    }
}

fn tls_error(error: &io::Error, route: &str) -> NoAnswer {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => NoAnswer {
            message: "http: server gave HTTP response to HTTPS client".to_owned(),
            spoke_http: true,
        },
        Some(error) => format!("tls: {error}").into(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned().into(),
        None => format!("read tcp {route}: read: {}", os_error(error)).into(),
    }
}
