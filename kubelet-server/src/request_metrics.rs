//! The metrics of requests (`pkg/kubelet/server/metrics`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use metrics::{SharedString, counter, gauge, histogram};
use tokio::time::Instant;

use crate::idle::OpenRequest;
use crate::{Body, BoxError};

const INFLIGHT: &str = "kubelet_http_inflight_requests";

/// The roots of paths that have a label of their own (`addMetricsBucketMatcher`). All others are `other`.
const PATHS: [&str; 19] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "statusz",
];
const METHODS: [&str; 8] = [
    "OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT",
];

/// One request, counted from its begin to its end: until its last clone is dropped. A session holds one.
pub(crate) struct RequestMetrics {
    labels: [(&'static str, SharedString); 4],
    begun: Instant,
    _open: Option<OpenRequest>,
}

impl RequestMetrics {
    pub(crate) fn begin<B>(request: &mut Request<B>, read_only: bool) -> Arc<Self> {
        let path = bucket(request.uri().path());
        let method = METHODS
            .into_iter()
            .find(|method| *method == request.method())
            .unwrap_or("other");
        // The kubelet compares with `portforward`; so its `portForward` is not long-running.
        let long_running = matches!(path, "exec" | "attach" | "debug");
        let labels = [
            ("method", SharedString::const_str(method)),
            ("path", SharedString::const_str(path)),
            (
                "server_type",
                SharedString::const_str(if read_only { "readonly" } else { "readwrite" }),
            ),
            (
                "long_running",
                SharedString::const_str(if long_running { "true" } else { "false" }),
            ),
        ];
        counter!("kubelet_http_requests_total", &labels).increment(1);
        gauge!(INFLIGHT, &labels).increment(1.0);
        let open = request.extensions().get::<OpenRequest>().cloned();
        let measured = Arc::new(Self {
            labels,
            begun: Instant::now(),
            _open: open,
        });
        request.extensions_mut().insert(measured.clone());
        measured
    }

    /// Ends the request when the body of its answer has ended.
    pub(crate) fn end_with(self: Arc<Self>, response: Response<Body>) -> Response<Body> {
        response.map(|body| Measured { body, _request: self }.boxed_unsync())
    }
}

/// The body of an answer, and its request.
struct Measured {
    body: Body,
    _request: Arc<RequestMetrics>,
}

impl http_body::Body for Measured {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        gauge!(INFLIGHT, &self.labels).decrement(1.0);
        histogram!("kubelet_http_requests_duration_seconds", &self.labels).record(self.begun.elapsed());
    }
}

/// The label of a path (`getMetricBucket`).
fn bucket(path: &str) -> &'static str {
    let mut parts = path.trim_start_matches('/').splitn(3, '/');
    let first = parts.next().unwrap_or_default();
    let root = match (first, parts.next()) {
        ("metrics", Some(second)) => &format!("metrics/{second}"),
        _ => first,
    };
    PATHS.into_iter().find(|path| *path == root).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_paths() {
        for (path, label) in [
            ("/pods", "pods"),
            ("/pods/", "pods"),
            ("/exec/a/b/c", "exec"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/slis", "other"),
            ("/healthz/ping", "healthz"),
            ("/", "other"),
            ("/whatever", "other"),
        ] {
            assert_eq!(bucket(path), label, "{path}");
        }
    }
}
