//! Makes the connection when it is needed, and again after it was lost, with a back-off between tries.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint};

use super::endpoint::RuntimeEndpoint;
use crate::error::Error;

/// How long one try to connect may take. The kubelet's `minConnectionTimeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait after the first failed try. The kubelet's `baseBackoffDelay`.
pub(super) const BASE_BACKOFF_DELAY: Duration = Duration::from_millis(100);

/// The longest wait. The kubelet's `maxBackoffDelay`.
pub(super) const MAX_BACKOFF_DELAY: Duration = Duration::from_secs(3);

/// By how much each wait grows: grpc-go's default.
const BACKOFF_FACTOR: f64 = 1.6;

/// Lets one large message through without a window update at every 64 KiB.
const WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// Connects to the runtime.
///
/// During the back-off of a failed try, each call fails at once with the error of that try, as with grpc-go. A try
/// counts as successful only when a call was answered. So a socket that accepts connections and drops them gets the
/// back-off too.
#[derive(Debug)]
pub(super) struct Dialer {
    endpoint: RuntimeEndpoint,
    base: Duration,
    max: Duration,
    tries: Mutex<Tries>,
}

#[derive(Debug, Default)]
struct Tries {
    /// Since the last answer.
    count: u32,
    /// No try before this.
    not_before: Option<Instant>,
    last_error: String,
}

impl Dialer {
    pub(super) fn new(endpoint: RuntimeEndpoint, base: Duration, max: Duration) -> Self {
        Self {
            endpoint,
            base,
            max,
            tries: Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &RuntimeEndpoint {
        &self.endpoint
    }

    /// The channel that dials with this. It dials at the first call. Needs a tokio runtime.
    pub(super) fn channel(self: &Arc<Self>) -> Result<Channel, Error> {
        let refuse = |message: String| Error::Connect {
            endpoint: self.endpoint.to_string(),
            message,
        };
        tokio::runtime::Handle::try_current().map_err(|error| refuse(error.to_string()))?;
        let http = Endpoint::from_shared(format!("http://{}", self.endpoint.authority()))
            .map_err(|error| refuse(error.to_string()))?
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let dialer = self.clone();
        Ok(http.connect_with_connector_lazy(tower::service_fn(move |_| {
            let dialer = dialer.clone();
            async move { dialer.dial().await.map(TokioIo::new) }
        })))
    }

    /// Records that the runtime answered: after the next loss, the client dials at once.
    pub(super) fn answered(&self) {
        let mut tries = self.tries.lock();
        if tries.count > 0 {
            *tries = Tries::default();
        }
    }

    /// When the next try may be made; `None` for at once.
    pub(super) fn next_try(&self) -> Option<Instant> {
        self.tries.lock().not_before
    }

    async fn dial(&self) -> io::Result<Box<dyn Connection>> {
        self.start_try()?;
        let connected = timeout(CONNECT_TIMEOUT, self.connect())
            .await
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "timed out")));
        match connected {
            Ok(connection) => {
                tracing::debug!(endpoint = %self.endpoint, "connected to the runtime");
                Ok(connection)
            }
            Err(error) => {
                tracing::debug!(endpoint = %self.endpoint, %error, "cannot connect to the runtime");
                let text = format!("connect to {}: {error}", self.endpoint);
                self.tries.lock().last_error.clone_from(&text);
                Err(io::Error::new(error.kind(), text))
            }
        }
    }

    /// Counts the try, or refuses it within the back-off of the last one.
    fn start_try(&self) -> io::Result<()> {
        let mut tries = self.tries.lock();
        let now = Instant::now();
        if tries.not_before.is_some_and(|at| now < at) {
            let why = if tries.last_error.is_empty() {
                "connection lost"
            } else {
                &tries.last_error
            };
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                format!("{why} (in back-off)"),
            ));
        }
        tries.not_before = Some(now + self.delay(tries.count));
        tries.count = tries.count.saturating_add(1);
        tries.last_error.clear();
        Ok(())
    }

    fn delay(&self, tries_before: u32) -> Duration {
        let exponent = i32::try_from(tries_before.min(64)).unwrap_or(64);
        let seconds = self.base.as_secs_f64() * BACKOFF_FACTOR.powi(exponent);
        Duration::from_secs_f64(seconds.min(self.max.as_secs_f64()))
    }

    async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        match &self.endpoint {
            RuntimeEndpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            RuntimeEndpoint::Tcp(address) => {
                let stream = TcpStream::connect(address.as_str()).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// A unix or TCP stream.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialer() -> Dialer {
        let endpoint = RuntimeEndpoint::parse("/nowhere/runtime.sock").unwrap();
        Dialer::new(endpoint, BASE_BACKOFF_DELAY, MAX_BACKOFF_DELAY)
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_to_the_cap_and_start_anew_after_an_answer() {
        let dialer = dialer();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let start = Instant::now();
            dialer.start_try().unwrap();
            let next = dialer.next_try().unwrap();
            assert!(dialer.start_try().is_err(), "a try within the back-off");
            waits.push((next - start).as_millis());
            tokio::time::advance(next - start).await;
        }
        assert_eq!(waits, [100, 160, 256, 409, 655, 1048, 1677, 2684, 3000]);
        dialer.answered();
        assert_eq!(dialer.next_try(), None);
        let start = Instant::now();
        dialer.start_try().unwrap();
        assert_eq!(dialer.next_try().unwrap() - start, BASE_BACKOFF_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn within_the_back_off_the_last_error_is_told() {
        let dialer = dialer();
        let first = dialer.dial().await.err().unwrap().to_string();
        assert!(first.contains("unix:///nowhere/runtime.sock"), "{first}");
        let second = dialer.dial().await.err().unwrap().to_string();
        assert_eq!(second, format!("{first} (in back-off)"));
    }
}
