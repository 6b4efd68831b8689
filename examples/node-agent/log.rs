//! The agent's own log: text or JSON, on stderr.

use std::io::{self, IsTerminal};

use kubelet_config::kubelet_configuration::LoggingConfiguration;
use tracing_subscriber::EnvFilter;

use crate::Error;

/// Logs as configured in the section `logging`. The variable `RUST_LOG` overrides it and can be more specific.
pub(crate) fn init(logging: &LoggingConfiguration) -> Result<(), Error> {
    // klog's numbers have no exact counterpart here. Up to 3 they are for the operators of a node.
    let level = match logging.verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match logging.format.as_str() {
        "json" => log.json().flatten_event(true).try_init(),
        _ => log.with_ansi(io::stderr().is_terminal()).try_init(),
    }
}
