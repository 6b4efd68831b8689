//! A connection to a node, for one request. It needs no task: who waits for the response drives the connection.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::BoxError;

use super::NodeStream;
use super::location::Location;
use super::tls;
use crate::http::ApiBody;
use crate::server::Shared;

/// The work of an open connection. It ends with the response, or when the connection is upgraded.
pub(super) type Driver = BoxFuture<'static, hyper::Result<()>>;

/// An open connection.
pub(super) struct Connection {
    sender: http1::SendRequest<ApiBody>,
    driver: Driver,
}

/// A response, and its connection as long as that has work.
pub(super) struct Answered {
    pub(super) response: Response<Incoming>,
    pub(super) driver: Option<Driver>,
}

impl Connection {
    /// Connects to a server on a node. There is no timeout but the operating system's.
    ///
    /// # Errors
    ///
    /// What failed, in Go's words as far as they are known.
    pub(super) async fn open(shared: &Shared, location: &Location) -> Result<Self, String> {
        if let (Some(dialer), Some(node)) = (&shared.dialer, &location.kubelet) {
            let stream = dialer
                .dial(node)
                .await
                .map_err(|error| format!("dial {node}: {error}"))?;
            return Self::on(stream).await;
        }
        let authority = location.authority();
        let dial = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                format!("dial tcp {authority}: connect: connection refused")
            }
            _ => format!("dial tcp {authority}: {error}"),
        };
        let port = location
            .port
            .parse()
            .map_err(|_| format!("dial tcp: unknown port {authority}"))?;
        let tcp = TcpStream::connect((location.host.as_str(), port))
            .await
            .map_err(dial)?;
        let _ = tcp.set_nodelay(true);
        let stream: Box<dyn NodeStream> = if location.https {
            let config =
                tls::config(shared, location.kubelet.is_some()).map_err(|error| error.to_string())?;
            let name = ServerName::try_from(location.host.clone()).map_err(|error| error.to_string())?;
            let connector = TlsConnector::from(Arc::new(config));
            Box::new(
                connector
                    .connect(name, tcp)
                    .await
                    .map_err(|error| error.to_string())?,
            )
        } else {
            Box::new(tcp)
        };
        Self::on(stream).await
    }

    async fn on(stream: Box<dyn NodeStream>) -> Result<Self, String> {
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = opened.map_err(|error| error.to_string())?;
        Ok(Connection {
            sender,
            driver: Box::pin(connection.with_upgrades()),
        })
    }

    /// Sends the request and waits for the head of the response.
    pub(super) async fn send(self, request: Request<ApiBody>) -> Result<Answered, String> {
        let Connection {
            mut sender,
            mut driver,
        } = self;
        let mut answer = pin!(sender.send_request(request));
        let (answer, driver) = tokio::select! {
            biased;
            answer = &mut answer => (answer, Some(driver)),
            // Nothing is left to do, so the response is there.
            _ = &mut driver => (answer.await, None),
        };
        let response = answer.map_err(|error| error.to_string())?;
        Ok(Answered { response, driver })
    }
}

impl Answered {
    /// The response, whose body drives the connection.
    pub(super) fn into_response(self) -> Response<ApiBody> {
        let driver = self.driver;
        self.response.map(|body| ApiBody::new(Driven { body, driver }))
    }
}

/// The body of a response.
struct Driven {
    body: Incoming,
    driver: Option<Driver>,
}

impl Body for Driven {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let driven = &mut *self;
        if let Some(driver) = &mut driven.driver
            && driver.as_mut().poll(context).is_ready()
        {
            driven.driver = None;
        }
        Pin::new(&mut driven.body)
            .poll_frame(context)
            .map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
