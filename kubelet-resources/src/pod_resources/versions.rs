//! Both versions of the API on one socket.

use std::convert::Infallible;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};

/// Gives each request to the version that its path names. Both are always ready.
#[derive(Clone)]
pub(super) struct Versions<V1, V1alpha1> {
    pub(super) v1: V1,
    pub(super) v1alpha1: V1alpha1,
}

impl<V1, V1alpha1, B, F> Service<http::Request<B>> for Versions<V1, V1alpha1>
where
    V1: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible, Future = F>,
    V1alpha1: Service<http::Request<B>, Response = http::Response<Body>, Error = Infallible, Future = F>,
    F: Future<Output = Result<http::Response<Body>, Infallible>>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = F;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> F {
        match request.uri().path().starts_with("/v1alpha1.") {
            true => self.v1alpha1.call(request),
            false => self.v1.call(request),
        }
    }
}
