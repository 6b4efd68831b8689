//! Bodies of requests and answers.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::header::{CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};

use crate::BoxError;

/// The body of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The content type of plain text, as Go's server writes it.
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The content type of JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A body of these bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body of pieces that come one after the other.
pub(crate) fn streamed<E: Into<BoxError>>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Body {
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data).map_err(Into::into))).boxed_unsync()
}

/// An answer of these bytes.
pub(crate) fn answer(
    status: StatusCode,
    content_type: HeaderValue,
    bytes: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// An answer of plain text without a line end, as go-restful's `WriteErrorString` writes it.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    answer(status, TEXT, text.into())
}

/// An answer of plain text with a line end, as Go's `http.Error` writes it.
pub(crate) fn http_error(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = answer(status, TEXT, format!("{text}\n"));
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Go's answer for a path that nobody serves.
pub(crate) fn not_found() -> Response<Body> {
    http_error(StatusCode::NOT_FOUND, "404 page not found")
}

/// go-restful's answer for a path below a service that has no such route.
pub(crate) fn page_not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404: Page Not Found")
}

/// go-restful's answer for a method that a route does not have.
pub(crate) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    with(
        text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"),
        http::header::ALLOW,
        allowed,
    )
}

/// Adds a header.
pub(crate) fn with(mut response: Response<Body>, name: HeaderName, value: &'static str) -> Response<Body> {
    response
        .headers_mut()
        .insert(name, HeaderValue::from_static(value));
    response
}
