//! Gets what lies at a URL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, TRAILER, TRANSFER_ENCODING,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::JoinSet;

use crate::error_chain::error_chain;
use crate::manifest::MAX_CONFIG_LENGTH;

/// How many requests one read makes at most, redirects followed (Go's HTTP client).
const MAX_REQUESTS: usize = 10;

/// Gets one URL, time and again.
pub(super) struct Fetch {
    uri: Uri,
    shown: String,
    headers: HeaderMap,
    timeout: Duration,
    connector: HttpsConnector<HttpConnector>,
}

impl Fetch {
    /// `None` while tokio's runtime shuts down.
    pub(super) async fn new(
        uri: Uri,
        mut headers: HeaderMap,
        timeout: Duration,
        tls: Option<ClientConfig>,
    ) -> Option<Self> {
        let tls = match tls {
            Some(tls) => Some(tls),
            // It reads files.
            None => tokio::task::spawn_blocking(trust_of_the_host).await.ok()?,
        };
        let mut tls = tls?;
        tls.alpn_protocols.clear();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let (uri, credentials) = split_credentials(uri);
        if let Some(credentials) = credentials
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, credentials);
        }
        Some(Self {
            shown: uri.to_string(),
            uri,
            headers,
            timeout,
            connector,
        })
    }

    /// The URL as it may be shown.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// What lies there now.
    pub(super) async fn get(&self) -> Result<Bytes, String> {
        match tokio::time::timeout(self.timeout, self.follow()).await {
            Ok(got) => got,
            Err(_) => Err(format!("no complete answer within {:?}", self.timeout)),
        }
    }

    async fn follow(&self) -> Result<Bytes, String> {
        let connections = Connections::default();
        let client = Client::builder(connections)
            .pool_max_idle_per_host(0)
            .build(self.connector.clone());
        let (mut uri, mut headers) = (self.uri.clone(), self.headers.clone());
        for _ in 0..MAX_REQUESTS {
            let mut request = Request::new(Empty::<Bytes>::new());
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            let response = client
                .request(request)
                .await
                .map_err(|error| error_chain(&error))?;
            let Some(location) = redirection(&response) else {
                return body(response).await;
            };
            let next = resolve(&uri, location)
                .ok_or_else(|| format!("{}: cannot follow to {location:?}", response.status()))?;
            if next.host() != uri.host() {
                for secret in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION] {
                    headers.remove(secret);
                }
            }
            uri = next;
        }
        Err(format!("stopped after {MAX_REQUESTS} redirects"))
    }
}

/// The headers of a configuration that can be sent. Errors name headers, never values.
pub(super) fn headers(given: &BTreeMap<String, Vec<String>>) -> Result<HeaderMap, Vec<String>> {
    let mut headers = HeaderMap::new();
    let mut problems = Vec::new();
    for (name, values) in given {
        let Ok(header) = name.parse::<HeaderName>() else {
            problems.push(format!("{name:?} cannot be the name of an HTTP header"));
            continue;
        };
        // They belong to the transport.
        if [HOST, CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER].contains(&header) {
            continue;
        }
        for value in values {
            match value.parse::<HeaderValue>() {
                Ok(value) => _ = headers.append(header.clone(), value),
                Err(_) => problems.push(format!("HTTP header {name:?} has a value that cannot be sent")),
            }
        }
    }
    if problems.is_empty() {
        Ok(headers)
    } else {
        Err(problems)
    }
}

/// A URL as it may be shown.
pub(super) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// The URI without user and password, and the header that they become.
fn split_credentials(uri: Uri) -> (Uri, Option<HeaderValue>) {
    let split = || {
        let (user, host) = uri.authority()?.as_str().rsplit_once('@')?;
        let authority: Authority = host.parse().ok()?;
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let user = format!("{}:{}", percent_decoded(user), percent_decoded(password));
        let mut header: HeaderValue = format!("Basic {}", STANDARD.encode(user)).parse().ok()?;
        header.set_sensitive(true);
        let mut parts = uri.clone().into_parts();
        parts.authority = Some(authority);
        Some((Uri::from_parts(parts).ok()?, header))
    };
    match split() {
        Some((plain, header)) => (plain, Some(header)),
        None => (uri, None),
    }
}

fn percent_decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}

/// What the host trusts. Without any of it plain HTTP works all the same.
fn trust_of_the_host() -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!("ignored a trusted certificate that cannot be read: {error}");
    }
    roots.add_parsable_certificates(found.certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().ok()?;
    Some(builder.with_root_certificates(roots).with_no_client_auth())
}

fn redirection(response: &Response<Incoming>) -> Option<&str> {
    let redirects = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    redirects.then_some(location)
}

/// Where a redirect from `base` leads.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.starts_with("http://") || location.starts_with("https://") {
        return Some(split_credentials(location.parse().ok()?).0);
    }
    let scheme = base.scheme_str()?;
    if let Some(elsewhere) = location.strip_prefix("//") {
        return format!("{scheme}://{elsewhere}").parse().ok();
    }
    let path = if location.starts_with('/') {
        location.to_owned()
    } else if location.starts_with('?') {
        format!("{}{location}", base.path())
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{folder}/{location}")
    };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

async fn body(response: Response<Incoming>) -> Result<Bytes, String> {
    let status = response.status();
    if status != StatusCode::OK {
        return Err(status.to_string());
    }
    match Limited::new(response.into_body(), MAX_CONFIG_LENGTH - 1)
        .collect()
        .await
    {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(format!(
            "too large: a manifest is smaller than {MAX_CONFIG_LENGTH} bytes"
        )),
        Err(error) => Err(error_chain(error.as_ref())),
    }
}

/// Runs the connections of one read. They end with it.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<JoinSet<()>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Connections {
    fn execute(&self, connection: F) {
        self.0.lock().spawn(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_resolve() {
        for (base, location, expected) in [
            ("http://a/x/y", "http://b/z", Some("http://b/z")),
            ("http://a/x/y", "https://b:8/z?q#f", Some("https://b:8/z?q")),
            ("https://a/x/y", "//b/z", Some("https://b/z")),
            ("http://a:1/x/y", "/z", Some("http://a:1/z")),
            ("http://a/x/y", "z", Some("http://a/x/z")),
            ("http://a", "z", Some("http://a/z")),
            ("http://a/x?q=1", "?q=2", Some("http://a/x?q=2")),
            ("http://a/x", "http://u:p@b/z", Some("http://b/z")),
            ("http://a/x", "http://", None),
            ("http://a/x", "/ z", None),
        ] {
            let resolved = resolve(&base.parse().unwrap(), location).map(|uri| uri.to_string());
            assert_eq!(resolved.as_deref(), expected, "{base} {location}");
        }
    }

    #[test]
    fn credentials_of_a_url_become_a_header() {
        let (uri, header) = split_credentials("http://me:s%40crt@host:1/p?q".parse().unwrap());
        assert_eq!(uri, "http://host:1/p?q");
        assert_eq!(header.unwrap(), format!("Basic {}", STANDARD.encode("me:s@crt")));
        let (uri, header) = split_credentials("http://host/@p".parse().unwrap());
        assert_eq!((uri, header), ("http://host/@p".parse().unwrap(), None));
        assert_eq!(
            without_credentials("http://me:secret@host/p@q"),
            "http://host/p@q"
        );
        assert_eq!(without_credentials("ftp://a@b@host"), "ftp://host");
        assert_eq!(without_credentials("nonsense"), "nonsense");
    }

    #[test]
    fn headers_are_checked_by_name() {
        let given = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), vec![value.to_owned()])]);
        assert_eq!(headers(&given("X-Token", "a")).unwrap()["x-token"], "a");
        assert!(headers(&given("Host", "elsewhere")).unwrap().is_empty());
        assert!(headers(&given("a b", "v")).unwrap_err()[0].contains("\"a b\""));
        let problems = headers(&given("X", "secret\n")).unwrap_err();
        assert!(
            problems[0].contains("\"X\"") && !problems[0].contains("secret"),
            "{problems:?}"
        );
    }
}
