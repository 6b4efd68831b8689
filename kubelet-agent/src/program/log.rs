//! The agent's own log: text or JSON, on stderr.

use std::io::{self, IsTerminal};
use std::sync::Arc;

use kubelet_config::kubelet_configuration::LoggingConfiguration;
use kubelet_server::LogVerbosity;
use tracing_subscriber::EnvFilter;

use crate::error::{Error, Result};

/// Logs as configured in the section `logging`. The variable `RUST_LOG` overrides it and can be more specific. What is
/// returned changes the verbosity later (`/debug/flags/v`).
pub(crate) fn init(logging: &LoggingConfiguration) -> Result<Arc<dyn LogVerbosity>> {
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(directives(logging.verbosity.into())));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    match logging.format.as_str() {
        "json" => {
            let log = log.json().flatten_event(true).with_filter_reloading();
            let handle = log.reload_handle();
            log.try_init().map_err(failed)?;
            Ok(Arc::new(Reload(move |filter| {
                handle.reload(filter).map_err(failed)
            })))
        }
        _ => {
            let log = log.with_ansi(io::stderr().is_terminal()).with_filter_reloading();
            let handle = log.reload_handle();
            log.try_init().map_err(failed)?;
            Ok(Arc::new(Reload(move |filter| {
                handle.reload(filter).map_err(failed)
            })))
        }
    }
}

/// The same, and each span goes to `spans`, too, whatever the verbosity is.
#[cfg(feature = "otlp")]
pub(crate) fn init_with<L>(logging: &LoggingConfiguration, spans: L) -> Result<Arc<dyn LogVerbosity>>
where
    L: tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync,
{
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
    use tracing_subscriber::util::SubscriberInitExt as _;

    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(directives(logging.verbosity.into())));
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter);
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let log = match logging.format.as_str() {
        "json" => log.json().flatten_event(true).boxed(),
        _ => log.with_ansi(io::stderr().is_terminal()).boxed(),
    };
    let log = tracing_subscriber::registry()
        .with(spans)
        .with(log.with_filter(filter));
    log.try_init().map_err(failed)?;
    Ok(Arc::new(Reload(move |filter| {
        handle.reload(filter).map_err(failed)
    })))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Program(format!("cannot start the log: {error}"))
}

/// klog's numbers have no exact counterpart here. Up to 3 they are for the operators of a node. The crates of others log each frame of HTTP/2
/// at `debug`, which hides all else: they do so from 6 on.
fn directives(verbosity: u64) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "info,kubelet=debug",
        6..=7 => "debug,kubelet=trace",
        _ => "trace",
    }
}

struct Reload<F>(F);

impl<F: Fn(EnvFilter) -> Result<()> + Send + Sync> LogVerbosity for Reload<F> {
    fn set(&self, value: &str) -> Result<String, String> {
        let failed = |error: &dyn std::fmt::Display| format!("failed set klog.logging {value}: {error}");
        let number: u32 = value.parse().map_err(|error| failed(&error))?;
        self.0(EnvFilter::new(directives(number.into()))).map_err(|error| failed(&error))?;
        Ok(format!("successfully set klog.logging.verbosity to {value}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use tracing::subscriber::with_default;

    use super::*;

    /// Whether our crates and those of others log at these levels.
    fn shown(verbosity: u64) -> [bool; 4] {
        let filter: EnvFilter = directives(verbosity).parse().unwrap();
        let log = tracing_subscriber::fmt().with_env_filter(filter).finish();
        with_default(log, || {
            [
                tracing::enabled!(target: "kubelet_core::pod_workers", tracing::Level::DEBUG),
                tracing::enabled!(target: "kubelet_core::pod_workers", tracing::Level::TRACE),
                tracing::enabled!(target: "h2::codec", tracing::Level::DEBUG),
                tracing::enabled!(target: "h2::codec", tracing::Level::TRACE),
            ]
        })
    }

    #[test]
    fn frames_are_logged_later_than_pods() {
        for (verbosity, logged) in [
            (2, [false, false, false, false]),
            (4, [true, false, false, false]),
            (6, [true, true, true, false]),
            (10, [true, true, true, true]),
        ] {
            assert_eq!(shown(verbosity), logged, "{verbosity}");
        }
    }
}
