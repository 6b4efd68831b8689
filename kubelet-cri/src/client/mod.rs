//! The gRPC client of a container runtime.

mod calls;
mod dial;
mod endpoint;
mod listed;
mod request;
mod response;
mod stream;
mod stream_lists;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::RwLock;
use prost::Message;
use tokio::time::{Instant, sleep_until};
use tonic::transport::Channel;

use self::dial::Dialer;
use self::endpoint::RuntimeEndpoint;
use self::request::Request;
use self::response::Response;
use crate::error::{Code, Error};
use crate::services::{KUBELET_API_VERSION, RuntimeService};
use crate::v1::grpc_client::image_service_client::ImageServiceClient;
use crate::v1::grpc_client::runtime_service_client::RuntimeServiceClient;
use crate::v1::{MAX_MESSAGE_BYTES, VersionRequest, VersionResponse};

/// The kubelet's default `runtimeRequestTimeout`.
const RUNTIME_REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The longest time. Longer ones are shortened to it, because the clock cannot represent any time.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How often [`CriClient::wait_ready`] logs a warning while the runtime does not answer.
const NOT_READY_WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A container runtime behind a gRPC endpoint, as [`RuntimeService`] and [`ImageService`](crate::ImageService).
///
/// There is one connection. The client dials it when it is first needed, and again when it was lost, so the client
/// keeps working after a restart of the runtime. While the runtime is away, a call fails at once with
/// [`Code::Unavailable`] and the reason. The client waits 100 ms before it tries to connect again, and up to 3 s after
/// more failures.
///
/// Each call has a deadline: [`timeout`](CriClientBuilder::timeout) for most calls, and twice that for `RunPodSandbox`.
/// `StopContainer` and `ExecSync` add the timeout of the request. `PullImage`, `GetContainerEvents` and an `ExecSync`
/// without a timeout have no deadline. A list that comes as a stream must end within the deadline. Dropping a call or a
/// stream cancels it at the runtime.
///
/// Clones are cheap and share the connection. The background tasks of the connection end when the last clone and the
/// last stream are dropped.
///
/// An answer that a kubelet cannot use, such as a sandbox without an id, is [`Error::InvalidResponse`].
///
/// This is the kubelet's `cri-client` (`remote_runtime.go`, `remote_image.go`).
#[derive(Clone)]
pub struct CriClient {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    channel: Channel,
    dialer: Arc<Dialer>,
    timeout: Duration,
    /// Whether lists are requested as streams. False from the first answer on that the runtime service has none.
    stream_lists: Arc<AtomicBool>,
    /// The same for the image service.
    stream_images: Arc<AtomicBool>,
    version: Arc<RwLock<Option<Arc<VersionResponse>>>>,
}

impl CriClient {
    /// Returns a builder of a client for the runtime at `endpoint`: `unix:///path`, an absolute path, or
    /// `tcp://host:port`.
    pub fn builder(endpoint: impl Into<String>) -> CriClientBuilder {
        CriClientBuilder {
            endpoint: endpoint.into(),
            timeout: RUNTIME_REQUEST_TIMEOUT,
            stream_lists: false,
            base_backoff: dial::BASE_BACKOFF_DELAY,
            max_backoff: dial::MAX_BACKOFF_DELAY,
        }
    }

    /// Connects to the runtime at `endpoint` with the kubelet's defaults; see [`CriClientBuilder::connect`].
    pub async fn connect(endpoint: impl Into<String>) -> Result<Self, Error> {
        Self::builder(endpoint).connect().await
    }

    /// The endpoint, as a URL.
    pub fn endpoint(&self) -> String {
        self.dialer.endpoint().to_string()
    }

    /// Name and version of the runtime from the last handshake; `None` before the first.
    pub fn runtime_version(&self) -> Option<Arc<VersionResponse>> {
        self.version.read().clone()
    }

    /// Requests the runtime's version and stores it.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedVersion`] if the runtime does not speak CRI v1; [`Error::Connect`] if the client cannot
    /// connect; otherwise the error of the call. Cancel safe.
    pub async fn handshake(&self) -> Result<Arc<VersionResponse>, Error> {
        let unsupported = |message: String| Error::UnsupportedVersion {
            endpoint: self.endpoint(),
            message,
        };
        let request = VersionRequest {
            version: KUBELET_API_VERSION.to_string(),
        };
        let version = match RuntimeService::version(self, request).await {
            Ok(version) => version,
            Err(error) if error.is_unimplemented() => return Err(unsupported(error.message())),
            Err(Error::Call {
                code: Code::Unavailable,
                message,
                ..
            }) => {
                return Err(Error::Connect {
                    endpoint: self.endpoint(),
                    message,
                });
            }
            Err(error) => return Err(error),
        };
        if !is_v1(&version.runtime_api_version) {
            let VersionResponse {
                runtime_name,
                runtime_version,
                runtime_api_version,
                ..
            } = version;
            return Err(unsupported(format!(
                "{runtime_name} {runtime_version} speaks {runtime_api_version:?}"
            )));
        }
        let version = Arc::new(version);
        *self.version.write() = Some(version.clone());
        Ok(version)
    }

    /// Waits until the runtime has started and answers the handshake. Tries again as the back-off allows.
    ///
    /// # Errors
    ///
    /// Errors that another try cannot solve: [`Error::UnsupportedVersion`], or an error that the runtime answers. There
    /// is no time limit: put a `tokio::time::timeout` around the call if you need one. Cancel safe.
    pub async fn wait_ready(&self) -> Result<Arc<VersionResponse>, Error> {
        let mut warn_at = None;
        loop {
            let started = Instant::now();
            match self.handshake().await {
                // `Unknown` is how containerd answers while it starts: its server is not initialized yet.
                Err(error) if error.is_transient() || error.code() == Code::Unknown => {
                    let endpoint = self.dialer.endpoint();
                    // An agent may start before its runtime, so the first failure is ordinary.
                    match warn_at {
                        None => tracing::info!(%endpoint, %error, "the runtime does not answer yet"),
                        Some(at) if started >= at => {
                            tracing::warn!(%endpoint, %error, "the runtime still does not answer");
                        }
                        Some(_) => tracing::debug!(%endpoint, %error, "the runtime does not answer yet"),
                    }
                    if warn_at.is_none_or(|at| started >= at) {
                        warn_at = Some(started + NOT_READY_WARNING_INTERVAL);
                    }
                    // A runtime that answers but is not ready gets the next try after the first delay of the back-off.
                    let next = self
                        .dialer
                        .next_try()
                        .unwrap_or(started + dial::BASE_BACKOFF_DELAY);
                    sleep_until(next).await;
                }
                result => return result,
            }
        }
    }

    /// Makes one call: fills in its deadline, waits for the answer, checks it, and names the call in an error.
    async fn unary<Q, R, F>(
        &self,
        call: &'static str,
        mut request: Q,
        send: impl FnOnce(Q) -> F + Send,
    ) -> Result<R, Error>
    where
        Q: Request + Message + Send,
        R: Response,
        F: Future<Output = Result<tonic::Response<R>, tonic::Status>> + Send,
    {
        let id = request.id();
        let deadline = match request.deadline(self.timeout) {
            Ok(deadline) => deadline,
            Err(message) => return Err(Error::invalid_argument(call, id, message)),
        };
        // The transport would report a larger message as a broken connection.
        let size = request.encoded_len();
        if size > MAX_MESSAGE_BYTES {
            let message = format!("the request has {size} bytes; the limit is {MAX_MESSAGE_BYTES}");
            return Err(Error::call(Code::OutOfRange, call, id, message));
        }
        let result = match deadline {
            None => Ok(send(request).await),
            Some(after) => match tokio::time::timeout(after, send(request)).await {
                Ok(result) => Ok(result),
                Err(_) => Err(Error::Timeout {
                    call,
                    id: id.clone(),
                    after,
                }),
            },
        };
        let result = result.and_then(|answer| match answer {
            Ok(response) => {
                self.dialer.answered();
                let response = response.into_inner();
                match response.check() {
                    Ok(()) => Ok(response),
                    Err(message) => Err(Error::InvalidResponse { call, id, message }),
                }
            }
            Err(status) => Err(self.refused(call, id, &status)),
        });
        if let Err(error) = &result {
            tracing::debug!(%error, "CRI call failed");
        }
        result
    }

    /// Converts a status to an error: the runtime's own, or an error of the connection.
    fn refused(&self, call: &'static str, id: String, status: &tonic::Status) -> Error {
        // A status that comes from the connection has a source; its code is a guess of the library.
        let Some(cause) = std::error::Error::source(status) else {
            self.dialer.answered();
            return Error::call(Code::from(i32::from(status.code())), call, id, status.message());
        };
        Error::call(Code::Unavailable, call, id, innermost(cause))
    }
}

impl fmt::Debug for CriClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriClient")
            .field("endpoint", &self.endpoint())
            .field("timeout", &self.timeout)
            .field("version", &self.runtime_version())
            .finish_non_exhaustive()
    }
}

/// Makes a [`CriClient`].
#[derive(Clone, Debug)]
#[must_use]
pub struct CriClientBuilder {
    endpoint: String,
    timeout: Duration,
    stream_lists: bool,
    base_backoff: Duration,
    max_backoff: Duration,
}

impl CriClientBuilder {
    /// The timeout of a call; see [`CriClient`] for the exceptions. The kubelet's `runtimeRequestTimeout`, 2 minutes by
    /// default, a year at most.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST);
        self
    }

    /// Requests each list (sandboxes, containers, images, stats, metrics) as a stream, so that it may be longer than one
    /// message of 16 MiB. A service without streams is asked once, and sends whole lists from then on. The gate
    /// `CRIListStreaming` of the kubelet; off by default.
    pub fn stream_lists(mut self, stream_lists: bool) -> Self {
        self.stream_lists = stream_lists;
        self
    }

    /// The delay after the first failed try to connect, and the longest delay. 100 ms and 3 s by default, a year at
    /// most.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.base_backoff = base.min(LONGEST);
        self.max_backoff = max.min(LONGEST);
        self
    }

    /// Connects and does the handshake.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEndpoint`], and those of [`CriClient::handshake`]. It tries once: to wait for a runtime that has
    /// not started yet, use [`connect_lazy`](Self::connect_lazy) and [`CriClient::wait_ready`].
    pub async fn connect(self) -> Result<CriClient, Error> {
        let client = self.connect_lazy()?;
        client.handshake().await?;
        Ok(client)
    }

    /// Checks that the endpoint is one, without a connection.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEndpoint`].
    pub fn check(&self) -> Result<(), Error> {
        RuntimeEndpoint::parse(&self.endpoint).map(drop)
    }

    /// Returns a client that connects at its first call, without a handshake. Use it for an endpoint that serves images
    /// only, or for a runtime that has not started yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidEndpoint`], and [`Error::Connect`] outside a tokio runtime.
    pub fn connect_lazy(self) -> Result<CriClient, Error> {
        let endpoint = RuntimeEndpoint::parse(&self.endpoint)?;
        let dialer = Arc::new(Dialer::new(endpoint, self.base_backoff, self.max_backoff));
        let channel = dialer.channel()?;
        Ok(CriClient {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            images: ImageServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            channel,
            dialer,
            timeout: self.timeout,
            stream_lists: Arc::new(AtomicBool::new(self.stream_lists)),
            stream_images: Arc::new(AtomicBool::new(self.stream_lists)),
            version: Arc::default(),
        })
    }
}

/// Whether a runtime that reports this API version speaks v1. It answered on the v1 service, so only a plain other
/// version is refused: some runtimes report their own version here, such as Docker's "1.43.0".
fn is_v1(runtime_api_version: &str) -> bool {
    match runtime_api_version.strip_prefix('v') {
        Some(number) => number == "1" || number.starts_with("1."),
        None => true,
    }
}

/// The innermost cause. Libraries wrap it in words such as "transport error".
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (version, expected) in [
            ("v1", true),
            ("v1.2", true),
            ("1.43.0", true),
            ("v1alpha2", false),
            ("v2", false),
            ("v10", false),
        ] {
            assert_eq!(is_v1(version), expected, "{version}");
        }
    }

    #[test]
    fn outside_a_runtime_it_is_an_error() {
        let error = CriClient::builder("/run/x.sock").connect_lazy().unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error}");
    }
}
