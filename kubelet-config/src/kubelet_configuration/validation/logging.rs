//! The agent's own log (`k8s.io/component-base/logs/api/v1`).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;

use super::super::{GoDuration, KubeletConfiguration};
use super::errors::Problems;
use super::host::Host;
use crate::FeatureGates;

/// Verbosity is not negative in the configuration, but is a signed number in the end.
const MOST_VERBOSE: u32 = i32::MAX as u32;
const TEXT: &str = "text";

pub(super) fn validate(
    config: &KubeletConfiguration,
    gates: &FeatureGates,
    host: &Host,
    problems: &mut Problems,
) {
    let log = &config.logging;
    let flush = log.flush_frequency.duration;
    if flush <= GoDuration::ZERO {
        problems.invalid("logging.flushFrequency", flush, "must be greater than zero");
    }
    let formats = if host.json_log_format {
        &[TEXT, "json"][..]
    } else {
        &[TEXT]
    };
    problems.unless_one_of("logging.format", &log.format, formats);
    verbosity("logging.verbosity", log.verbosity, problems);

    if !log.vmodule.is_empty() && !matches!(log.format.as_str(), "" | TEXT) {
        let why = "is there only for the log format text";
        problems.invalid(
            "logging.vmodule",
            format_args!("{} items", log.vmodule.len()),
            why,
        );
    }
    for (at, item) in log.vmodule.iter().enumerate() {
        let field = format!("logging.vmodule[{at}]");
        if item.file_pattern.is_empty() {
            problems.invalid_text(format!("{field}.filePattern"), "", "must not be empty");
        }
        if item.file_pattern.contains(['=', ',']) {
            let why = "must not contain an equal sign or a comma";
            problems.invalid_text(format!("{field}.filePattern"), &item.file_pattern, why);
        }
        verbosity(&format!("{field}.verbosity"), item.verbosity, problems);
    }

    if gates.enabled("LoggingAlphaOptions") {
        return;
    }
    let why = "requires feature gate LoggingAlphaOptions";
    for (format, options) in [(TEXT, &log.options.text), ("json", &log.options.json)] {
        if options.split_stream {
            problems.invalid(format!("logging.options.{format}.splitStream"), true, why);
        }
        if !is_zero(&options.info_buffer_size) {
            let field = format!("logging.options.{format}.infoBufferSize");
            problems.invalid_text(field, &options.info_buffer_size.0, why);
        }
    }
}

fn verbosity(field: &str, level: u32, problems: &mut Problems) {
    if level > MOST_VERBOSE {
        problems.invalid(field, level, format!("must be at most {MOST_VERBOSE}"));
    }
}

fn is_zero(size: &Quantity) -> bool {
    Amount::try_from(size).is_ok_and(Amount::is_zero)
}
