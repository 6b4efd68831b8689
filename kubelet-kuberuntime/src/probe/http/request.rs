//! Makes a request of an action of the API (`pkg/probe/http/request.go`).

use http::header::{ACCEPT, CONTENT_LENGTH, HOST, TRAILER, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, HTTPHeader};

use super::url::Url;
use crate::probe::port::resolve_container_port;

/// A GET request.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) url: Url,
    pub(super) headers: HeaderMap,
    /// Overrides the URL's host.
    pub(super) host: Option<HeaderValue>,
    /// The problem of an invalid header.
    pub(super) invalid: Option<String>,
}

impl HttpRequest {
    /// The request for an action (`NewRequestForHTTPGetAction`); the error names an invalid port.
    pub(crate) fn new(
        action: &HTTPGetAction,
        container: &Container,
        pod_ip: &str,
        user_agent: &'static str,
    ) -> Result<Self, String> {
        let scheme = action.scheme.as_deref().unwrap_or_default().to_lowercase();
        let scheme = if scheme.is_empty() { "http" } else { &scheme };
        let host = action.host.as_deref().filter(|host| !host.is_empty());
        let port = resolve_container_port(&action.port, container)?;
        let path = action.path.as_deref().unwrap_or_default();
        let url = Url::new(scheme, host.unwrap_or(pod_ip), port, path);

        let mut request = Self {
            url,
            headers: HeaderMap::new(),
            host: None,
            invalid: None,
        };
        for header in action.http_headers.iter().flatten() {
            if let Err(invalid) = request.append(header) {
                request.invalid.get_or_insert(invalid);
            }
        }
        request.finish(user_agent);
        Ok(request)
    }

    fn append(&mut self, header: &HTTPHeader) -> Result<(), String> {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| format!("net/http: invalid header field name {:?}", header.name))?;
        let value = HeaderValue::from_str(header.value.trim())
            .map_err(|_| format!("net/http: invalid header field value for {:?}", header.name))?;
        self.headers.append(name, value);
        Ok(())
    }

    /// An empty `User-Agent` or `Accept` removes the header; a missing one gets the kubelet's value.
    fn finish(&mut self, user_agent: &'static str) {
        let headers = &mut self.headers;
        self.host = headers.remove(HOST).filter(|host| !host.is_empty());
        for framing in [CONTENT_LENGTH, TRANSFER_ENCODING, TRAILER] {
            headers.remove(framing);
        }
        for (name, default) in [(USER_AGENT, user_agent), (ACCEPT, "*/*")] {
            match headers.get(&name).map(HeaderValue::is_empty) {
                None => drop(headers.insert(name, HeaderValue::from_static(default))),
                Some(true) => drop(headers.remove(name)),
                Some(false) => {}
            }
        }
    }

    /// The same request without TLS, and without headers that only TLS should carry.
    pub(crate) fn downgraded(&self) -> Self {
        let mut request = self.clone();
        request.url.scheme = "http".to_owned();
        request.headers.remove(http::header::AUTHORIZATION);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn request(action: Value) -> HttpRequest {
        let container = json!({"name": "c", "ports": [{"name": "quux", "containerPort": 8080}]});
        HttpRequest::new(
            &serde_json::from_value(action).unwrap(),
            &serde_json::from_value(container).unwrap(),
            "10.0.0.9",
            "kube-probe/1.36",
        )
        .unwrap()
    }

    #[test]
    fn urls_follow_from_actions() {
        let table = [
            (
                json!({"port": 42, "host": "example.test", "path": "foo", "scheme": "HTTP"}),
                "http://example.test:42/foo",
            ),
            (json!({"port": 42, "path": "/foo"}), "http://10.0.0.9:42/foo"),
            (
                json!({"port": "quux", "host": "", "path": "foo"}),
                "http://10.0.0.9:8080/foo",
            ),
            (
                json!({"port": "4430", "path": "foo", "scheme": "HTTPS"}),
                "https://10.0.0.9:4430/foo",
            ),
            (json!({"port": 80}), "http://10.0.0.9:80"),
            (
                json!({"port": 80, "path": "foo?k=v"}),
                "http://10.0.0.9:80/foo?k=v",
            ),
        ];
        for (action, url) in table {
            assert_eq!(request(action).url.to_string(), url);
        }
    }

    #[test]
    fn headers_follow_from_actions() {
        let all = |headers: &HeaderMap| {
            let mut all: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            all.sort();
            all
        };
        // configured → sent, and the host
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Option<&'a str>);
        let table: &[Row<'_>] = &[
            (&[], &["accept: */*", "user-agent: kube-probe/1.36"], None),
            (
                &[("User-Agent", "foo/1.0"), ("Accept", "text/html")],
                &["accept: text/html", "user-agent: foo/1.0"],
                None,
            ),
            (&[("user-agent", ""), ("accept", "")], &[], None),
            (
                &[
                    ("X-Muffins-Or-Cupcakes", "muffins"),
                    ("accept", "a/b"),
                    ("Accept", "*/*"),
                    ("user-agent", "x"),
                ],
                &[
                    "accept: */*",
                    "accept: a/b",
                    "user-agent: x",
                    "x-muffins-or-cupcakes: muffins",
                ],
                None,
            ),
            (
                &[
                    ("HOST", "muffins.cupcakes.org"),
                    ("Accept-Encoding", ""),
                    ("Content-Length", "7"),
                ],
                &["accept-encoding: ", "accept: */*", "user-agent: kube-probe/1.36"],
                Some("muffins.cupcakes.org"),
            ),
        ];
        for (given, expected, host) in table {
            let given: Vec<Value> = given
                .iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            let request = request(json!({"port": 80, "httpHeaders": given}));
            assert_eq!(all(&request.headers), *expected);
            assert_eq!(request.host.as_ref().map(|host| host.to_str().unwrap()), *host);
        }
        let bad = request(json!({"port": 80, "httpHeaders": [{"name": "a b", "value": "x"}]}));
        assert_eq!(
            bad.invalid.as_deref(),
            Some("net/http: invalid header field name \"a b\"")
        );
    }
}
