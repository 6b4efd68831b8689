//! Responses.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;
use tower::BoxError;

use futures::{Stream, TryStreamExt};

use crate::status_error::StatusError;

/// The body of a response: whole, or the stream of a watch or of a node.
pub type ApiBody = UnsyncBoxBody<Bytes, BoxError>;

/// A response of one JSON document.
pub(super) fn json(code: u16, content_type: &'static str, body: &Value, pretty: bool) -> Response<ApiBody> {
    let text = if pretty {
        serde_json::to_vec_pretty(body)
    } else {
        serde_json::to_vec(body)
    };
    // A `Value` has nothing that cannot be written.
    whole(code, content_type, Bytes::from(text.unwrap_or_default()))
}

/// A response of bytes.
pub(super) fn whole(code: u16, content_type: &'static str, body: Bytes) -> Response<ApiBody> {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    response(code, content_type, body)
}

/// A response that goes on.
pub(super) fn stream(
    content_type: &'static str,
    lines: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
) -> Response<ApiBody> {
    response(
        200,
        content_type,
        StreamBody::new(lines.map_ok(Frame::data)).boxed_unsync(),
    )
}

/// A refusal.
pub(super) fn refusal(error: &StatusError, content_type: &'static str, pretty: bool) -> Response<ApiBody> {
    let mut response = json(error.code, content_type, &error.to_value(), pretty);
    let retry = error
        .details
        .as_ref()
        .and_then(|d| d["retryAfterSeconds"].as_u64());
    if let Some(seconds) = retry {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn response(code: u16, content_type: &'static str, body: ApiBody) -> Response<ApiBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
