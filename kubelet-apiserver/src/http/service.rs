//! [`ApiService`]: from an HTTP request to its response.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "tls")]
use bytes::Buf;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::{BoxError, Service};

use super::answer::{ApiBody, refusal};
use super::exchange::Exchange;
#[cfg(feature = "tls")]
use super::exchange::unauthorized;
use super::target::Target;
#[cfg(feature = "tls")]
use crate::listener::Streams;
use crate::request::User;
use crate::server::Shared;
use crate::status_error::StatusError;
use crate::trouble::Trouble;

/// The longest body (`maxRequestBodyBytes`).
const MAX_REQUEST_BODY_BYTES: usize = 3 * 1024 * 1024;

/// The server as an HTTP service. Clones share one server.
///
/// A response arrives whole, unless it is a watch or comes from a node. If you drop the response future, the server has processed the request
/// either completely or not at all.
#[derive(Clone, Debug)]
pub struct ApiService {
    shared: Arc<Shared>,
    /// The user of all requests; `None` if a token names the user.
    user: Option<User>,
    /// When the certificate of this connection expires.
    #[cfg(feature = "tls")]
    until: Option<k8s_openapi::jiff::Timestamp>,
    /// What runs the upgraded connections of a listener; `None` without a listener.
    #[cfg(feature = "tls")]
    streams: Option<Streams>,
}

impl ApiService {
    pub(crate) fn new(shared: Arc<Shared>, user: Option<User>) -> Self {
        ApiService {
            shared,
            user,
            #[cfg(feature = "tls")]
            until: None,
            #[cfg(feature = "tls")]
            streams: None,
        }
    }

    /// The service for a connection that can be upgraded.
    #[cfg(feature = "tls")]
    pub(crate) fn with_streams(mut self, streams: Streams) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Refuses requests from this time on, because the client certificate of the connection has expired.
    #[cfg(feature = "tls")]
    pub(crate) fn until(mut self, until: k8s_openapi::jiff::Timestamp) -> Self {
        self.until = Some(until);
        self
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<ApiBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ApiBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.respond(request).await })
    }
}

impl ApiService {
    async fn respond<B>(self, request: Request<B>) -> Result<Response<ApiBody>, BoxError>
    where
        B: http_body::Body + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let shared = self.shared.clone();
        shared.outage.check()?;
        #[cfg(feature = "tls")]
        if self.until.is_some_and(|until| shared.now() > until) {
            return Ok(refusal(&unauthorized(), "application/json", false));
        }
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let (mut head, body) = request.into_parts();
        let mut exchange = match Exchange::new(self.shared, self.user, &head) {
            Ok(exchange) => exchange,
            Err(error) => return Ok(refusal(&error, "application/json", false)),
        };
        #[cfg(feature = "tls")]
        let (for_node, body) = if exchange.is_for_node() {
            let upgrade = head.extensions.remove().zip(self.streams);
            (Some((streamed(body), upgrade)), None)
        } else {
            (None, Some(body))
        };
        #[cfg(not(feature = "tls"))]
        let body = Some(body);
        let body = match body.map(|body| Limited::new(body, MAX_REQUEST_BODY_BYTES)) {
            None => Bytes::new(),
            Some(body) => match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) if error.is::<LengthLimitError>() => return Ok(exchange.refuse(&too_large())),
                Err(error) => return Err(error),
            },
        };
        let Target::Objects(path) = &exchange.target else {
            return Ok(exchange
                .answer(body)
                .unwrap_or_else(|error| exchange.refuse(&error)));
        };
        let about = exchange.about(path, &body);
        let trouble = shared.trouble(&about);
        let record = shared.record(about);
        let (lost, hangs) = (io::ErrorKind::ConnectionReset, None);
        let refused = match &trouble {
            None | Some(Trouble::ReplyLost | Trouble::ReplyDelayed(_) | Trouble::ReplyHangs) => None,
            Some(Trouble::ConnectionLost) => return Err(io::Error::from(lost).into()),
            Some(Trouble::Hangs) => return Err(never(shared.outage.wait(hangs).await).into()),
            Some(Trouble::Slow(by)) => {
                shared.outage.wait(Some(*by)).await?;
                None
            }
            Some(Trouble::Refused {
                code,
                reason,
                message,
                retry_after,
            }) => {
                let error = StatusError::new(*code, reason, message);
                Some(match retry_after {
                    Some(seconds) => error.with_details(serde_json::json!({"retryAfterSeconds": seconds})),
                    None => error,
                })
            }
            Some(Trouble::Gone) => {
                exchange.gone = true;
                None
            }
            Some(Trouble::Ends(ending, after)) => {
                exchange.ends = Some((*ending, *after));
                None
            }
        };
        #[cfg(not(feature = "tls"))]
        let answer = match refused {
            Some(error) => Err(error),
            None => exchange.answer_written(body).await,
        };
        #[cfg(feature = "tls")]
        let answer = match (refused, for_node) {
            (Some(error), _) => Err(error),
            (None, Some((body, upgrade))) => exchange.forward(body, upgrade).await,
            (None, None) if exchange.is_for_metrics() => exchange.metrics().await,
            (None, None) => exchange.answer_written(body).await,
        };
        let response = answer.unwrap_or_else(|error| exchange.refuse(&error));
        match trouble {
            Some(Trouble::ReplyLost) => return Err(io::Error::from(lost).into()),
            Some(Trouble::ReplyHangs) => return Err(never(shared.outage.wait(hangs).await).into()),
            Some(Trouble::ReplyDelayed(by)) => shared.outage.wait(Some(by)).await?,
            _ => {}
        }
        shared.answered(record, response.status().as_u16());
        Ok(response)
    }
}

/// A body that is passed on as it arrives.
#[cfg(feature = "tls")]
fn streamed<B>(body: B) -> ApiBody
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    let owned = |mut data: B::Data| {
        let length = data.remaining();
        data.copy_to_bytes(length)
    };
    ApiBody::new(
        body.map_frame(move |frame| frame.map_data(owned))
            .map_err(Into::into),
    )
}

/// The end of a wait that can only fail.
fn never(waited: io::Result<()>) -> io::Error {
    waited
        .err()
        .unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())
}

fn too_large() -> StatusError {
    StatusError::new(
        413,
        "RequestEntityTooLarge",
        format!("Request entity too large: limit is {MAX_REQUEST_BODY_BYTES}"),
    )
}
