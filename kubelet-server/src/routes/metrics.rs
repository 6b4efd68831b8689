//! `/metrics`, `/metrics/probes`, `/metrics/slis`: the metrics of the agent itself.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Response, StatusCode};

use k8s_openapi::api::core::v1::Pod;

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

/// The metrics of the agent, for instance [`Metrics`](crate::prometheus::Metrics).
pub trait MetricsSource: Send + Sync {
    /// The metrics as text, and its content type, in the format that the client prefers by its headers.
    fn metrics(&self, selection: MetricsSelection, headers: &HeaderMap) -> (HeaderValue, Vec<u8>);

    /// These pods are the desired ones: forget the probes of all others. Called before `/metrics/probes` is written. By
    /// default, nothing is forgotten.
    fn retain_pods(&self, pods: &[Arc<Pod>]) {
        let _ = pods;
    }

    /// A health check passed or failed: for `/metrics/slis`. By default, it is not counted.
    fn observe_health_check(&self, name: &str, healthy: bool) {
        let _ = (name, healthy);
    }
}

/// The lines before a metric begin so.
const HELP: &[u8] = b"# HELP ";
/// The last line of OpenMetrics.
const END: &[u8] = b"# EOF";

/// Inserts metrics where they are in the order of names.
fn insert_sorted(text: &mut Vec<u8>, metrics: &[u8]) {
    if metrics.is_empty() {
        return;
    }
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let follows = line.starts_with(HELP) && line > metrics;
        if follows || line.starts_with(END) {
            break;
        }
        at += line.len();
    }
    text.splice(at..at, metrics.iter().copied());
}

/// The answer to one of the paths; `None` if the path is not of the agent's own metrics.
pub(crate) fn serve(
    source: Option<&dyn MetricsSource>,
    path: &str,
    headers: &HeaderMap,
    of_volumes: &[u8],
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
    let (content_type, mut text) = source.metrics(selection, headers);
    if selection == MetricsSelection::Main {
        insert_sorted(&mut text, of_volumes);
    }
    Some(body::answer(StatusCode::OK, content_type, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_inserted_in_order() {
        for (before, after) in [
            ("# HELP a A\na 1\n", "# HELP z Z\nz 1\n"),
            ("# HELP a A\na 1\n", ""),
            ("# HELP a A\na 1\n", "# EOF\n"),
            ("", "# HELP z Z\nz 1\n# EOF\n"),
        ] {
            let mut text = format!("{before}{after}").into_bytes();
            insert_sorted(&mut text, b"# HELP m M\nm 1\n");
            let expected = format!("{before}# HELP m M\nm 1\n{after}");
            assert_eq!(String::from_utf8_lossy(&text), expected);
            insert_sorted(&mut text, b"");
            assert_eq!(String::from_utf8_lossy(&text), expected);
        }
    }
}
