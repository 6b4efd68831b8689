//! Static pods from a URL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use http::uri::Authority;
use http::{HeaderMap, Uri};
use kubelet_core::annotations::HTTP_SOURCE;
use kubelet_core::{PodSource, SourceUpdate};
use rustls::ClientConfig;
use tokio::time::sleep;

use crate::manifest::{self, Location, Manifests};
use crate::source_stream::{Words, source_stream};
use crate::{Error, Result};

mod fetch;

use fetch::Fetch;

/// How often the URL is read (`httpCheckFrequency` of `KubeletConfiguration`).
const HTTP_CHECK_FREQUENCY: Duration = Duration::from_secs(20);
/// How long one read may take (the kubelet's client for this).
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many failures in a row are reported.
const FAILURES_TOLD: u32 = 4;

/// Reads static pods from a URL, again and again. Corresponds to the kubelet's `sourceURL`.
///
/// The body is one pod or a `PodList` of `v1`, as YAML or JSON, see [`manifest`](crate::manifest); an unchanged
/// body sends no update. Redirects are followed, with ten requests at most. Credentials are not sent to another
/// host.
///
/// A pod gets the UID that the kubelet v1.36 gives it, see [`manifest::decode`](crate::manifest::decode). It is a hash of the pod
/// and the URL.
///
/// After a failed read the source is [`Unavailable`](SourceUpdate::Unavailable) and its pods stay. A read fails if
/// there is no answer, if the status is not 200, if the body is empty or has 10 MiB or more, if it is not a pod or
/// a list of pods, or if one pod of the list is invalid. The first four failures in a row are reported, later ones
/// are logged at level `debug`. An empty body also marks the source as seen, without pods.
///
/// ```no_run
/// use kubelet_config::{HttpSource, PodConfig};
///
/// let config = PodConfig::builder()
///     .source(HttpSource::new("https://config.example/node-1.yaml", "node-1")?)
///     .build()?;
/// # Ok::<(), kubelet_config::Error>(())
/// ```
#[derive(Clone)]
pub struct HttpSource {
    url: String,
    uri: Uri,
    node_name: String,
    headers: HeaderMap,
    check_frequency: Duration,
    timeout: Duration,
    tls: Option<ClientConfig>,
}

impl HttpSource {
    /// The pods at `url`, for the node `node_name`.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] if this is not an absolute `http` or `https` URL.
    pub fn new(url: impl Into<String>, node_name: impl Into<String>) -> Result<Self> {
        let url = url.into();
        let misconfigured = |why: String| Error::Misconfigured {
            problems: vec![format!(
                "URL of static pods {:?}: {why}",
                fetch::without_credentials(&url)
            )],
        };
        let uri: Uri = url.parse().map_err(|error| misconfigured(format!("{error}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(misconfigured("not an http or https URL".into()));
        }
        if uri.host().unwrap_or_default().is_empty() {
            return Err(misconfigured("it has no host".into()));
        }
        let host = uri.authority().map(Authority::as_str).unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if let Some((_, port)) = host.rsplit_once(':')
            && !port.ends_with(']')
            && port.parse::<u16>().is_err()
        {
            return Err(misconfigured(format!("{port:?} is not a port")));
        }
        Ok(Self {
            uri,
            url,
            node_name: node_name.into(),
            headers: HeaderMap::new(),
            check_frequency: HTTP_CHECK_FREQUENCY,
            timeout: TIMEOUT,
            tls: None,
        })
    }

    /// Headers of each request (`staticPodURLHeader`). As in the kubelet, `Host`, `Content-Length`,
    /// `Transfer-Encoding` and `Trailer` are not sent.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the names of all headers that cannot be sent; never with a value, which may be a
    /// secret.
    pub fn headers(mut self, headers: &BTreeMap<String, Vec<String>>) -> Result<Self> {
        self.headers = fetch::headers(headers).map_err(|problems| Error::Misconfigured { problems })?;
        Ok(self)
    }

    /// How long to wait after each read (`httpCheckFrequency`). Default: 20 seconds.
    #[must_use]
    pub fn check_frequency(mut self, period: Duration) -> Self {
        self.check_frequency = period.max(Duration::from_millis(1));
        self
    }

    /// How long one read may take, from the connection to the last byte. Default: 10 seconds.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The TLS configuration: trusted certificates and the client certificate. Default: the certificates that the
    /// host trusts, and no client certificate. ALPN protocols in it are not used.
    #[must_use]
    pub fn tls_config(mut self, config: ClientConfig) -> Self {
        self.tls = Some(config);
        self
    }
}

impl PodSource for HttpSource {
    /// `http`
    fn name(&self) -> &str {
        HTTP_SOURCE
    }

    /// Dropping the stream ends a read in progress. Bodies are decoded on tokio's blocking threads.
    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        source_stream(|words| async move {
            let (url, node_name, period) = (self.url.into(), self.node_name.into(), self.check_frequency);
            let Some(fetch) = Fetch::new(self.uri, self.headers, self.timeout, self.tls).await else {
                return;
            };
            let mut reading = Reading {
                fetch,
                url,
                node_name,
                words,
                body: None,
                failures: 0,
                seen: false,
            };
            loop {
                reading.read().await;
                sleep(period).await;
            }
        })
    }
}

/// A source at work.
struct Reading {
    fetch: Fetch,
    url: Arc<str>,
    node_name: Arc<str>,
    words: Words,
    /// The last body, and its problem.
    body: Option<(Bytes, Option<String>)>,
    /// In a row.
    failures: u32,
    /// Whether a list of pods was sent, even an empty one.
    seen: bool,
}

impl Reading {
    async fn read(&mut self) {
        match self.news().await {
            Ok(None) if self.failures > 0 => {
                self.recover();
                self.words.say(SourceUpdate::Available).await;
            }
            Ok(None) => {}
            Ok(Some(manifests)) => {
                self.recover();
                self.seen = true;
                for message in manifests.passed_over {
                    let item = self.fetch.shown().to_owned();
                    self.words.say(SourceUpdate::Problem { item, message }).await;
                }
                let pods = manifests.pods.into_iter().map(Arc::new).collect();
                self.words.say(SourceUpdate::Snapshot(pods)).await;
            }
            Err(failure) => self.fail(failure).await,
        }
    }

    /// What the URL holds, if it is other than before.
    async fn news(&mut self) -> std::result::Result<Option<Manifests>, String> {
        let body = self.fetch.get().await?;
        if body.is_empty() {
            if !self.seen {
                self.seen = true;
                self.words.say(SourceUpdate::Snapshot(Vec::new())).await;
            }
            return Err("zero-length data received".into());
        }
        if let Some((before, problem)) = &self.body
            && *before == body
        {
            return problem.clone().map_or(Ok(None), Err);
        }
        let (text, url, node_name) = (body.clone(), self.url.clone(), self.node_name.clone());
        let decoded = tokio::task::spawn_blocking(move || {
            manifest::decode_list(&text, &node_name, Location::Url(&url))
        });
        let decoded = decoded.await.map_err(|error| error.to_string())?;
        let decoded = decoded.map_err(|error| error.to_string());
        self.body = Some((body, decoded.as_ref().err().cloned()));
        decoded.map(Some)
    }

    async fn fail(&mut self, failure: String) {
        self.failures = self.failures.saturating_add(1);
        let url = self.fetch.shown();
        if self.failures > FAILURES_TOLD {
            tracing::debug!(source = HTTP_SOURCE, url, "cannot read pods: {failure}");
            return;
        }
        let mut message = format!("{url}: {failure}");
        if self.failures == FAILURES_TOLD {
            message += " (failures from here on are logged at level debug)";
        }
        self.words.say(SourceUpdate::Unavailable { message }).await;
    }

    fn recover(&mut self) {
        if self.failures > 0 {
            let url = self.fetch.shown();
            tracing::info!(source = HTTP_SOURCE, url, "pods can be read again");
            self.failures = 0;
        }
    }
}
