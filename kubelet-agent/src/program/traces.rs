//! `tracing` of the configuration: the spans of the agent, sent to an OpenTelemetry collector (`newTracerProvider`).

use std::sync::Mutex;
use std::time::Duration;

use kubelet_config::kubelet_configuration::TracingConfiguration;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

use crate::error::{Error, Result};

/// The name of the service in traces (`ComponentKubelet`).
const SERVICE: &str = "kubelet";
/// Where a collector listens if no endpoint is configured.
const ENDPOINT: &str = "localhost:4317";
/// How long the last spans may take at the end of the process.
const LAST_SPANS: Duration = Duration::from_secs(5);
/// The begin of the names of our crates. The spans of the client that sends the spans must not be sent.
const CRATES: &str = "kubelet";

/// Sends spans in batches. The agent never waits for the collector; spans that it does not take in time are dropped.
#[derive(Debug)]
pub(super) struct Traces(Mutex<Option<SdkTracerProvider>>);

impl Traces {
    /// Connects when the first spans are sent. It must be called in a tokio runtime.
    pub(super) fn new(config: &TracingConfiguration, host: String) -> Result<Self> {
        let exporter = SpanExporter::builder().with_tonic();
        let exporter = exporter.with_endpoint(url(config.endpoint.as_deref().unwrap_or(ENDPOINT))?);
        let service = Resource::builder_empty()
            .with_service_name(SERVICE)
            .with_attribute(KeyValue::new("host.name", host));
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(sampler(
                config.sampling_rate_per_million,
            ))))
            .with_batch_exporter(exporter.build().map_err(failed)?)
            .with_resource(service.build())
            .build();
        Ok(Self(Mutex::new(Some(provider))))
    }

    /// Gets the spans of our crates, from level debug.
    pub(super) fn layer(&self) -> Option<impl Layer<Registry> + Send + Sync + use<>> {
        let provider = self.0.lock().ok()?.clone()?;
        let spans = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(SERVICE))
            .with_location(false)
            .with_threads(false);
        Some(spans.with_filter(Targets::new().with_target(CRATES, LevelFilter::DEBUG)))
    }

    /// Sends what is left, for some seconds at most.
    pub(super) async fn end(&self) {
        let Some(provider) = self.0.lock().ok().and_then(|mut provider| provider.take()) else {
            return;
        };
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST_SPANS)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "cannot send the last spans");
        }
    }
}

/// Without a rate, only spans whose parent is sampled.
fn sampler(rate_per_million: Option<i32>) -> Sampler {
    match rate_per_million {
        Some(rate) if rate > 0 => Sampler::TraceIdRatioBased(f64::from(rate) / 1_000_000.0),
        _ => Sampler::AlwaysOff,
    }
}

/// The endpoint as a URL without TLS (`WithInsecure`). gRPC names endpoints in its own way: `HOST:PORT`, `dns:///HOST:PORT` or
/// `unix:///SOCKET`.
fn url(endpoint: &str) -> Result<String> {
    let Some((scheme, rest)) = endpoint.split_once("://") else {
        return Ok(format!("http://{endpoint}"));
    };
    match (scheme, rest.split_once('/')) {
        ("unix", _) => Ok(endpoint.to_owned()),
        ("dns", Some((_, host))) => Ok(format!("http://{host}")),
        _ => Err(failed(format!(
            "{endpoint}: use HOST:PORT, dns:///HOST:PORT or unix:///SOCKET"
        ))),
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Program(format!(
        "could not configure tracer provider: tracing.endpoint: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_grpc_become_urls() {
        for (endpoint, expected) in [
            ("localhost:4317", Some("http://localhost:4317")),
            ("[::1]:4317", Some("http://[::1]:4317")),
            ("dns:///collector:4317", Some("http://collector:4317")),
            ("dns://10.0.0.2/collector:4317", Some("http://collector:4317")),
            ("unix:///run/otel.sock", Some("unix:///run/otel.sock")),
            ("unix-abstract://otel", None),
        ] {
            assert_eq!(url(endpoint).ok().as_deref(), expected, "{endpoint}");
        }
    }

    #[test]
    fn without_a_rate_no_trace_begins_here() {
        for rate in [None, Some(0)] {
            assert!(matches!(sampler(rate), Sampler::AlwaysOff));
        }
        assert!(matches!(sampler(Some(500_000)), Sampler::TraceIdRatioBased(rate) if rate == 0.5));
    }
}
