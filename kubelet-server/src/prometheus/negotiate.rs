//! Which format a client asked for.

use http::HeaderMap;
use http::header::ACCEPT;

use super::Format;

/// The format that a client prefers by its header `Accept`. Prometheus' text unless it asks for OpenMetrics.
pub fn negotiate(headers: &HeaderMap) -> Format {
    let mut best = (0.0, Format::Text);
    let values = headers.get_all(ACCEPT).into_iter();
    for range in values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let (mut quality, mut version) = (1.0, "");
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = value.trim().parse().unwrap_or(1.0),
                "version" => version = value.trim().trim_matches('"'),
                _ => (),
            }
        }
        let format = match (kind.to_ascii_lowercase().as_str(), version) {
            ("application/openmetrics-text", "" | "0.0.1" | "1.0.0") => Format::OpenMetrics,
            ("text/plain", "" | "0.0.4") => Format::Text,
            _ => continue,
        };
        // Of two that are as good, the first.
        if quality > best.0 {
            best = (quality, format);
        }
    }
    best.1
}
