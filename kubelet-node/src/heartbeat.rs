//! The client for heartbeats.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, Request};
use kube_client::{Client, Error as ClientError};
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::{Error, Result};

/// How long to wait for an answer. The default is the shorter of `nodeStatusUpdateFrequency` and the lease's
/// duration.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client for the node's status and lease only, so that no other request delays a heartbeat. Clones share the
/// client. Answers to the kubelet's `heartbeatClient`.
///
/// Each request has a timeout. If heartbeats fail repeatedly, the connections themselves may be broken: see
/// [`on_repeated_failure`](Self::on_repeated_failure) and [`renewed_by`](Self::renewed_by).
#[derive(Clone)]
pub struct HeartbeatClient {
    client: Arc<RwLock<Client>>,
    repeated_failure: Option<Arc<dyn Fn() + Send + Sync>>,
    timeout: Duration,
}

impl HeartbeatClient {
    /// A client that waits up to 10 s for each answer.
    ///
    /// Pass a `client` of its own: clones of a [`Client`] share connections.
    pub fn new(client: Client) -> Self {
        Self {
            client: Arc::new(RwLock::new(client)),
            repeated_failure: None,
            timeout: TIMEOUT,
        }
    }

    /// Sets the timeout of each request; it is also sent to the server.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets what to do after the second failure in a row and after each further one
    /// (`onRepeatedHeartbeatFailure`). The kubelet closes its idle connections then.
    #[must_use]
    pub fn on_repeated_failure(mut self, react: impl Fn() + Send + Sync + 'static) -> Self {
        self.repeated_failure = Some(Arc::new(react));
        self
    }

    /// As [`on_repeated_failure`](Self::on_repeated_failure), for connections that cannot be closed: a new
    /// client replaces the old one.
    #[must_use]
    pub fn renewed_by(
        self,
        make: impl Fn() -> std::result::Result<Client, ClientError> + Send + Sync + 'static,
    ) -> Self {
        let current = self.client.clone();
        self.on_repeated_failure(move || match make() {
            Ok(client) => *current.write() = client,
            Err(error) => tracing::warn!(%error, "cannot make a new client for heartbeats"),
        })
    }

    /// Replaces the client, for example after a certificate rotation. Running requests complete on the old one.
    pub fn replace(&self, client: Client) {
        *self.client.write() = client;
    }

    pub(crate) fn failed_repeatedly(&self) {
        if let Some(react) = &self.repeated_failure {
            react();
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn create<T: Serialize + DeserializeOwned>(&self, path: &str, object: &T) -> Result<T> {
        self.call(Method::POST, path, Some((JSON, json(path, object)?)))
            .await
    }

    pub(crate) async fn update<T: Serialize + DeserializeOwned>(&self, path: &str, object: &T) -> Result<T> {
        self.call(Method::PUT, path, Some((JSON, json(path, object)?)))
            .await
    }

    pub(crate) async fn strategic_patch<T: DeserializeOwned>(&self, path: &str, patch: &Value) -> Result<T> {
        self.call(Method::PATCH, path, Some((STRATEGIC_PATCH, json(path, patch)?)))
            .await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<T> {
        let what = format!("{} {path}", method.as_str().to_lowercase());
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{path}?timeout={}s", self.timeout.as_secs().max(1)));
        let mut bytes = Vec::new();
        if let Some((content_type, body)) = body {
            request = request.header(CONTENT_TYPE, content_type);
            bytes = body;
        }
        let request = request
            .body(bytes)
            .map_err(|error| Error::api(&what, ClientError::HttpError(error)))?;
        let client = self.client.read().clone();
        match timeout(self.timeout, client.request(request)).await {
            Ok(answer) => answer.map_err(|error| Error::api(&what, error)),
            Err(_) => Err(Error::Timeout {
                what,
                after: self.timeout,
            }),
        }
    }
}

const JSON: &str = "application/json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

fn json(path: &str, object: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(object).map_err(|error| Error::api(path, ClientError::SerdeError(error)))
}

kubelet_core::impl_debug!(HeartbeatClient: timeout);
