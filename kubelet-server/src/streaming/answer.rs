//! What a handler of streams gives back: a response, and what runs after it.

use std::fmt::Display;

use crate::body::{self, Body};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use kubelet_core::runtime::streaming::{StreamError, StreamErrorKind};
use tracing::{Instrument as _, Span};

/// The answer to a request for streams.
#[must_use]
pub struct Answer {
    /// Send this first.
    pub response: Response<Body>,
    /// The streams, if the response is `101 Switching Protocols`. Run it to its end, after or while the response is sent. To
    /// drop it ends the streams.
    pub session: Option<BoxFuture<'static, ()>>,
}

impl Answer {
    pub(super) fn refused(response: Response<Body>) -> Self {
        Self {
            response,
            session: None,
        }
    }

    /// What the streams log is within this span.
    pub(super) fn within(mut self, span: Span) -> Self {
        self.session = self.session.map(|session| session.instrument(span).boxed());
        self
    }

    pub(super) fn error(status: StatusCode, message: impl Display) -> Self {
        Self::refused(text_error(status, message))
    }
}

/// A response whose body is a line of text, as `http.Error` of Go writes it.
pub(super) fn text_error(status: StatusCode, message: impl Display) -> Response<Body> {
    let mut response = Response::new(body::full(format!("{message}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    let nosniff = HeaderName::from_static("x-content-type-options");
    headers.insert(nosniff, HeaderValue::from_static("nosniff"));
    response
}

/// The response for an error of a runtime that was asked for a URL: the status of the kind, and the message
/// (`streaming.WriteError` of the reference).
pub fn stream_error_response(error: &StreamError) -> Response<Body> {
    let status = match error.kind {
        StreamErrorKind::NotFound => StatusCode::NOT_FOUND,
        StreamErrorKind::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let response = body::text(status, &*error.message);
    if status == StatusCode::TOO_MANY_REQUESTS {
        // The time after which an offer expires.
        return body::with(response, RETRY_AFTER, "60");
    }
    response
}
