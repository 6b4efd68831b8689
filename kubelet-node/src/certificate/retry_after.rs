//! [`RetryAfter`]: which requests the client retries itself.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header};
use kube_client::client::Body;
use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

/// Retries a request if the server asks for it: status 429 or 5xx with `Retry-After` in seconds, up to ten
/// times (client-go's `withRetry`). Other failures are returned, because the caller knows best how long to
/// wait.
#[derive(Clone, Default)]
pub(super) struct RetryAfter {
    tries: u32,
}

/// (`maxRetries` of `NewRequest`)
const MAX_RETRIES: u32 = 10;

impl<B> Policy<Request<Body>, Response<B>, BoxError> for RetryAfter {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let answer = result.as_ref().ok()?;
        self.tries += 1;
        if self.tries > MAX_RETRIES {
            return None;
        }
        wanted(answer.status(), answer.headers()).map(sleep)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // A streamed body cannot be sent twice.
        let mut clone = Request::new(request.body().try_clone()?);
        *clone.method_mut() = request.method().clone();
        *clone.uri_mut() = request.uri().clone();
        *clone.version_mut() = request.version();
        *clone.headers_mut() = request.headers().clone();
        *clone.extensions_mut() = request.extensions().clone();
        Some(clone)
    }
}

/// When the server wants the request again (`checkWait`).
fn wanted(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tries: u32, status: u16, retry_after: Option<&str>) -> Option<Duration> {
        let mut answer = Response::builder().status(status);
        if let Some(retry_after) = retry_after {
            answer = answer.header("Retry-After", retry_after);
        }
        let mut answer = Ok::<_, BoxError>(answer.body(()).unwrap());
        let mut policy = RetryAfter { tries };
        let wait = policy.retry(&mut Request::new(Body::empty()), &mut answer)?;
        Some(wait.deadline() - tokio::time::Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_says_whether_and_when() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (status, retry_after, expected) in [
            (429, Some("1"), seconds(1)),
            (503, Some("30"), seconds(30)),
            (504, Some("0"), seconds(0)),
            (429, None, None),
            (503, None, None),
            (503, Some("Fri, 31 Dec 1999 23:59:59 GMT"), None),
            (503, Some("-1"), None),
            (200, Some("1"), None),
            (404, Some("1"), None),
        ] {
            assert_eq!(
                policy(0, status, retry_after),
                expected,
                "{status} {retry_after:?}"
            );
        }
        assert_eq!(policy(9, 429, Some("1")), seconds(1));
        assert_eq!(policy(10, 429, Some("1")), None);
        let mut broken = Err::<Response<()>, BoxError>("no connection".into());
        let again = RetryAfter::default().retry(&mut Request::new(Body::empty()), &mut broken);
        assert!(again.is_none());
    }

    #[tokio::test]
    async fn a_request_is_the_same_again() {
        let request = Request::patch("/api/v1/nodes/a").header("Accept", "text/plain");
        let request = request.body(Body::from(b"{}".to_vec())).unwrap();
        let mut policy = RetryAfter::default();
        let clone: Request<Body> =
            Policy::<_, Response<()>, _>::clone_request(&mut policy, &request).unwrap();
        assert_eq!((clone.method(), clone.uri()), (request.method(), request.uri()));
        assert_eq!(clone.headers(), request.headers());
        assert_eq!(clone.into_body().collect_bytes().await.unwrap(), "{}");
    }
}
