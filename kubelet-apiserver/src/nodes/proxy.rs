//! `nodes/proxy`, `pods/proxy`, and the forwarding of requests as they are (`UpgradeAwareHandler`).

use std::mem;

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::upgrade::OnUpgrade;

use super::connection::Connection;
use super::location::Location;
use super::{NodeRequest, plain_error, tunnel};
use crate::http::ApiBody;
use crate::status_error::StatusError;

/// The headers that are about one connection only.
const OF_ONE_CONNECTION: [HeaderName; 5] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
const ALSO_OF_ONE_CONNECTION: [&str; 4] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
];

/// The longest text of a refusal.
const MAX_REFUSAL: usize = 64 * 1024;

/// `nodes/proxy` and `pods/proxy`.
pub(super) async fn as_it_is(request: NodeRequest<'_>) -> Result<Response<ApiBody>, StatusError> {
    let location = Location::of_proxy(request.shared, request.attributes)?;
    let query = request.uri.query().unwrap_or_default().to_owned();
    if wants_upgrade(request.headers) {
        let path = target(
            if request.tail.is_empty() {
                "/"
            } else {
                request.tail
            },
            &query,
        );
        return upgrade(request, &location, &path).await;
    }
    if request.tail.is_empty() && matches!(*request.method, Method::GET | Method::HEAD) {
        return Ok(redirect(&target(&format!("{}/", request.uri.path()), &query)));
    }
    let path = target(
        if request.tail.is_empty() {
            "/"
        } else {
            request.tail
        },
        &query,
    );
    forward(request, &location, &path).await
}

/// Forwards a request that must be an upgrade.
pub(super) async fn upgrade_required(
    request: NodeRequest<'_>,
    location: &Location,
    path: &str,
) -> Result<Response<ApiBody>, StatusError> {
    if !wants_upgrade(request.headers) {
        return Err(StatusError::bad_request("Upgrade request required"));
    }
    upgrade(request, location, path).await
}

/// A path with its query.
pub(super) fn target(path: &str, query: &str) -> String {
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

async fn forward(
    mut request: NodeRequest<'_>,
    location: &Location,
    path: &str,
) -> Result<Response<ApiBody>, StatusError> {
    let failed = |error: String| {
        let message = format!("error trying to reach service: {error}");
        StatusError::new(503, "ServiceUnavailable", message)
    };
    let body = mem::replace(&mut request.body, empty());
    let mut forwarded = head(&request, location, path, body)?;
    forwarded.headers_mut().remove(CONTENT_LENGTH);
    remove_hops(forwarded.headers_mut());
    let connection = Connection::open(request.shared, location).await.map_err(failed)?;
    let answered = connection.send(forwarded).await.map_err(failed)?;
    let mut response = answered.into_response();
    remove_hops(response.headers_mut());
    for what in ["credentials", "headers", "methods", "origin"] {
        response
            .headers_mut()
            .remove(format!("access-control-allow-{what}"));
    }
    Ok(response)
}

async fn upgrade(
    mut request: NodeRequest<'_>,
    location: &Location,
    path: &str,
) -> Result<Response<ApiBody>, StatusError> {
    let Some((client, streams)) = request.upgrade.take() else {
        let why = "this connection cannot be upgraded: use HTTP/1.1 on a port of the server";
        return Err(plain_error(why.into()));
    };
    let forwarded = head(&request, location, path, empty())?;
    let connection = Connection::open(request.shared, location)
        .await
        .map_err(|error| plain_error(format!("error dialing backend: {error}")))?;
    let mut answered = connection.send(forwarded).await.map_err(plain_error)?;
    let status = answered.response.status();
    if status != StatusCode::SWITCHING_PROTOCOLS {
        if status.as_u16() >= 400 {
            let mut response = answered.into_response();
            remove_hops(response.headers_mut());
            return refusal(response).await;
        }
        let code = status.as_u16();
        return Err(plain_error(format!(
            "invalid upgrade response: status code {code}"
        )));
    }
    let node: OnUpgrade = hyper::upgrade::on(&mut answered.response);
    streams.spawn(tunnel::run(client, node, answered.driver));
    Ok(answered.response.map(|_| empty()))
}

/// A node refuses with the text of an error. `kubectl` also reads it as YAML, and `rpc error: …` is an object there, in which it
/// finds no message and prints none. So this text is sent as a `Status`.
async fn refusal(response: Response<ApiBody>) -> Result<Response<ApiBody>, StatusError> {
    let (mut head, mut body) = response.into_parts();
    let mut text = Vec::new();
    while text.len() < MAX_REFUSAL
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| plain_error(error.to_string()))?;
        text.extend(frame.into_data().unwrap_or_default());
    }
    text.truncate(MAX_REFUSAL);
    head.headers.remove(CONTENT_LENGTH);
    if text.starts_with(b"rpc error: ") {
        let message = String::from_utf8_lossy(&text);
        return Err(StatusError::new(head.status.as_u16(), "InternalError", message));
    }
    Ok(Response::from_parts(
        head,
        Full::new(text.into())
            .map_err(|never| match never {})
            .boxed_unsync(),
    ))
}

/// The request as the node gets it, without the client's credentials.
fn head(
    request: &NodeRequest<'_>,
    location: &Location,
    path: &str,
    body: ApiBody,
) -> Result<Request<ApiBody>, StatusError> {
    let invalid = |error: &dyn std::fmt::Display| StatusError::bad_request(error.to_string());
    let mut forwarded = Request::new(body);
    *forwarded.method_mut() = request.method.clone();
    *forwarded.uri_mut() = path.parse().map_err(|error| invalid(&error))?;
    *forwarded.headers_mut() = request.headers.clone();
    let headers = forwarded.headers_mut();
    headers.remove(AUTHORIZATION);
    if !headers.contains_key(HOST) {
        let host = request
            .uri
            .authority()
            .map_or_else(|| location.authority(), ToString::to_string);
        headers.insert(
            HOST,
            HeaderValue::from_str(&host).map_err(|error| invalid(&error))?,
        );
    }
    Ok(forwarded)
}

/// `IsUpgradeRequest`.
fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

fn remove_hops(headers: &mut HeaderMap) {
    for name in OF_ONE_CONNECTION {
        headers.remove(name);
    }
    for name in ALSO_OF_ONE_CONNECTION {
        headers.remove(name);
    }
}

fn redirect(to: &str) -> Response<ApiBody> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

pub(super) fn empty() -> ApiBody {
    Empty::<Bytes>::new()
        .map_err(|never| match never {})
        .boxed_unsync()
}
