//! [`Connections`]: clients of the API server that use the newest certificate.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube_client::client::Body;
use kube_client::config::AuthInfo;
use kube_client::{Client, Config};
use kubelet_core::Disk;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::{BoxError, service_fn};

use super::{Certificate, CertificateHandle, Connect};
use crate::HeartbeatClient;

/// The connections of clients that follow a certificate (`certificate.UpdateTransport`). Clones share the
/// connections.
///
/// When the [`CertificateManager`](super::CertificateManager) has a new certificate, new requests use new
/// connections with that certificate. Idle old connections are closed. Running requests and watches continue on
/// the old connections until they end; a watch is then opened again with the new certificate.
#[derive(Clone)]
pub struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    connect: Connect,
    disk: Disk,
    /// `None`: the credentials are those of `config`.
    certificates: Option<CertificateHandle>,
    /// Only one client is made at a time.
    making: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newest: Option<Generation>,
    /// Reaches the running requests of all generations.
    closed: CancellationToken,
}

/// The connections that use one certificate.
struct Generation {
    client: Client,
    certificate: Option<Arc<Certificate>>,
}

impl Connections {
    /// Connections that use the newest certificate. Until there is a first one, requests wait, because the API
    /// server would reject them. Other credentials of `config` are not used.
    pub fn following(mut config: Config, certificates: CertificateHandle, connect: Connect) -> Self {
        config.auth_info = AuthInfo::default();
        Self::new(config, Some(certificates), connect, Disk::default())
    }

    /// Connections with the credentials of `config`.
    pub fn fixed(config: Config, connect: Connect) -> Self {
        Self::new(config, None, connect, Disk::default())
    }

    fn new(config: Config, certificates: Option<CertificateHandle>, connect: Connect, disk: Disk) -> Self {
        let shared = Shared {
            config,
            connect,
            disk,
            certificates,
            making: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        };
        Connections {
            shared: Arc::new(shared),
        }
    }

    /// Where clients are made; this may read the files that the configuration names. Default: on another
    /// thread. Call it before the connections are used.
    #[must_use]
    pub fn with_disk(self, disk: Disk) -> Self {
        let Shared {
            config,
            connect,
            certificates,
            ..
        } = &*self.shared;
        Self::new(config.clone(), certificates.clone(), connect.clone(), disk)
    }

    /// Separate connections with the same identity, so that requests on these cannot delay them.
    #[must_use]
    pub fn apart(&self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = self.shared.config.clone();
        change(&mut config);
        Self::new(
            config,
            self.shared.certificates.clone(),
            self.shared.connect.clone(),
            self.shared.disk,
        )
    }

    /// A client for heartbeats on separate connections, which waits up to `timeout` for each answer
    /// (`heartbeatClient`).
    ///
    /// If heartbeats fail repeatedly, the connections may be dead. Then all connections are
    /// [closed](Self::close_all), including these here and their watches, as the kubelet does with HTTP/1.1
    /// (`onHeartbeatFailure`).
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn heartbeats(&self, timeout: Duration) -> HeartbeatClient {
        let (all, own) = (self.clone(), self.apart(|_| {}));
        HeartbeatClient::new(own.client())
            .with_timeout(timeout)
            .on_repeated_failure(move || {
                all.close_all();
                own.close_all();
            })
    }

    /// A client on these connections.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, because the client spawns a task.
    pub fn client(&self) -> Client {
        let shared = self.shared.clone();
        let service = service_fn(move |request| {
            let shared = shared.clone();
            async move { send(shared.generation().await?, request).await }
        });
        Client::new(service, self.shared.config.default_namespace.clone())
    }

    /// Closes idle connections. Busy ones close when their requests end (`CloseIdleConnections`).
    pub fn close_idle(&self) {
        self.shared.state.lock().newest = None;
    }

    /// Closes all connections (`closeAllConns`). Running requests and watches fail.
    pub fn close_all(&self) {
        std::mem::take(&mut *self.shared.state.lock()).closed.cancel();
    }
}

impl Shared {
    /// The client for the newest certificate, and the signal to close its connections.
    async fn generation(&self) -> kube_client::Result<(Client, CancellationToken)> {
        if let Some(certificates) = &self.certificates {
            certificates.first().await;
        }
        if let Some(made) = self.made() {
            return Ok(made);
        }
        let _making = self.making.lock().await;
        if let Some(made) = self.made() {
            return Ok(made);
        }
        let newest = self.newest();
        let mut config = self.config.clone();
        if let Some(certificate) = &newest {
            config.auth_info.client_certificate_data = Some(STANDARD.encode(certificate.chain_pem()));
            config.auth_info.client_key_data = Some(STANDARD.encode(certificate.key_pem()).into());
        }
        let connect = self.connect.clone();
        let made = self.disk.run(move || Ok(connect(config))).await;
        let client = made.map_err(|error| kube_client::Error::Service(error.into()))??;
        let mut state = self.state.lock();
        let new = Generation {
            client: client.clone(),
            certificate: newest,
        };
        if state.newest.replace(new).is_some() {
            tracing::info!("the client certificate changed; new connections use it");
        }
        Ok((client, state.closed.clone()))
    }

    fn made(&self) -> Option<(Client, CancellationToken)> {
        let newest = self.newest();
        let state = self.state.lock();
        let made = state
            .newest
            .as_ref()
            .filter(|made| match (&made.certificate, &newest) {
                (None, None) => true,
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                _ => false,
            })?;
        Some((made.client.clone(), state.closed.clone()))
    }

    fn newest(&self) -> Option<Arc<Certificate>> {
        self.certificates.as_ref().and_then(CertificateHandle::current)
    }
}

async fn send(
    (client, closed): (Client, CancellationToken),
    request: Request<Body>,
) -> Result<Response<ClosableBody>, BoxError> {
    let answer = tokio::select! {
        biased;
        () = closed.cancelled() => return Err(Closed.into()),
        answer = client.send(request) => answer?,
    };
    Ok(answer.map(|body| ClosableBody {
        body,
        closed: Box::pin(closed.cancelled_owned()),
    }))
}

/// A body that fails when its connection is closed.
struct ClosableBody {
    body: Body,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl http_body::Body for ClosableBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.closed.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Closed.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The error of a request whose connection was closed.
#[derive(Debug, thiserror::Error)]
#[error("the agent closed the connection")]
struct Closed;

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("server", &self.shared.config.cluster_url)
            .finish_non_exhaustive()
    }
}
