//! Opens more connections when the running requests need them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{Client as HttpClient, Error};
use kube_client::client::Body;
use parking_lot::Mutex;
use tower::Service;

/// How many requests share a connection of HTTP/2: the minimum that a server should allow (RFC 9113, 6.5.2).
const SHARED_BY: usize = 100;

/// Clients of one server, each with one connection of HTTP/2. If the server allows no more requests on a
/// connection, a client waits until one ends, which for a watch takes minutes. Then another client is added, as
/// Go adds a connection.
#[derive(Clone)]
pub(super) struct Lanes<C> {
    make: Arc<dyn Fn() -> HttpClient<C, Body> + Send + Sync>,
    lanes: Arc<Mutex<Vec<Lane<C>>>>,
}

struct Lane<C> {
    client: HttpClient<C, Body>,
    /// Each running request holds one of these.
    under_way: Arc<()>,
}

impl<C: Clone> Lanes<C> {
    /// `make` makes each client.
    pub(super) fn new(make: impl Fn() -> HttpClient<C, Body> + Send + Sync + 'static) -> Self {
        Self {
            make: Arc::new(make),
            lanes: Arc::default(),
        }
    }

    /// The first client with room for a request, and the request's mark.
    fn lane(&self) -> (HttpClient<C, Body>, Arc<()>) {
        let mut lanes = self.lanes.lock();
        while lanes.len() > 1 && lanes.last().is_some_and(|last| last.requests() == 0) {
            lanes.pop();
        }
        if let Some(lane) = lanes.iter().find(|lane| lane.requests() < SHARED_BY) {
            return (lane.client.clone(), lane.under_way.clone());
        }
        let lane = Lane {
            client: (self.make)(),
            under_way: Arc::default(),
        };
        let chosen = (lane.client.clone(), lane.under_way.clone());
        lanes.push(lane);
        chosen
    }
}

impl<C> Lane<C> {
    fn requests(&self) -> usize {
        Arc::strong_count(&self.under_way) - 1
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for Lanes<C> {
    type Response = Response<Answer>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<Self::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, under_way) = self.lane();
        let answering = client.request(request);
        let marked = |body| Answer {
            body,
            _under_way: under_way,
        };
        async move { Ok(answering.await?.map(marked)) }.boxed()
    }
}

/// The body of an answer. Its request counts as running until the body ends or is dropped.
pub(super) struct Answer {
    body: Incoming,
    _under_way: Arc<()>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
