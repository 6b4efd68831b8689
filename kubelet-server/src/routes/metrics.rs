//! `/metrics`, `/metrics/probes`, `/metrics/slis`: the metrics of the agent itself.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::{self, Body};

/// Which metrics a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricsSelection {
    /// `/metrics`: all but those of the other two.
    Main,
    /// `/metrics/probes`: the results of probes.
    Probes,
    /// `/metrics/slis`: the results of health checks.
    Slis,
}

/// The metrics of the agent, for instance those of [`Metrics`](crate::prometheus::Metrics).
pub trait MetricsSource: Send + Sync {
    /// The metrics as text, and its content type. `accept` is what the client accepts, if it says so.
    fn metrics(&self, selection: MetricsSelection, accept: Option<&str>) -> (HeaderValue, Vec<u8>);
}

/// The answer to one of the paths; `None` if the path is not of the agent's own metrics.
pub(crate) fn serve(
    source: Option<&dyn MetricsSource>,
    path: &str,
    headers: &HeaderMap,
) -> Option<Response<Body>> {
    let selection = match path {
        "/metrics" => MetricsSelection::Main,
        "/metrics/probes" => MetricsSelection::Probes,
        "/metrics/slis" => MetricsSelection::Slis,
        _ => return None,
    };
    let Some(source) = source else {
        return Some(body::not_found());
    };
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let (content_type, text) = source.metrics(selection, accept);
    Some(body::answer(StatusCode::OK, content_type, text))
}
