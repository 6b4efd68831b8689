//! Writes metrics as text, byte for byte as Prometheus' Go library does.

use std::fmt::Write;

use super::Format;
use super::definition::Kind;

/// Appends metrics to a string.
pub(super) struct Writer<'a> {
    format: Format,
    out: &'a mut String,
}

impl<'a> Writer<'a> {
    pub(super) fn new(format: Format, out: &'a mut String) -> Self {
        Self { format, out }
    }

    /// The lines before the series of a metric.
    pub(super) fn header(&mut self, name: &str, kind: Kind, help: &str) {
        // In OpenMetrics a counter's series have the suffix, the counter itself does not. A counter without it is no counter.
        let (name, kind) = match (self.format, kind, name.strip_suffix("_total")) {
            (Format::OpenMetrics, Kind::Counter, Some(short)) => (short, "counter"),
            (Format::OpenMetrics, Kind::Counter, None) => (name, "unknown"),
            (_, Kind::Counter, _) => (name, "counter"),
            (_, Kind::Gauge, _) => (name, "gauge"),
            (_, Kind::Histogram, _) => (name, "histogram"),
        };
        self.out.push_str("# HELP ");
        self.out.push_str(name);
        self.out.push(' ');
        escape(help, self.format == Format::OpenMetrics, self.out);
        self.out.push_str("\n# TYPE ");
        self.out.push_str(name);
        self.out.push(' ');
        self.out.push_str(kind);
        self.out.push('\n');
    }

    /// One series of a counter or gauge.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        self.series(name, "", labels, None);
        self.number(value);
        self.out.push('\n');
    }

    /// One series of a histogram. `counts` are those of each bucket alone, the last is of values beyond all bounds.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        bounds: &[f64],
        counts: impl Iterator<Item = u64>,
        sum: f64,
    ) {
        let mut total = 0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(counts) {
            total += count;
            self.series(name, "_bucket", labels, Some(bound));
            self.count(total);
        }
        self.series(name, "_sum", labels, None);
        self.number(sum);
        self.out.push('\n');
        self.series(name, "_count", labels, None);
        self.count(total);
    }

    /// What comes after the last metric.
    pub(super) fn end(&mut self) {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
    }

    fn series(&mut self, name: &str, suffix: &str, labels: &str, bound: Option<f64>) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        if !labels.is_empty() || bound.is_some() {
            self.out.push('{');
            self.out.push_str(labels);
            if let Some(bound) = bound {
                self.out
                    .push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
                self.number(bound);
                self.out.push('"');
            }
            self.out.push('}');
        }
        self.out.push(' ');
    }

    fn count(&mut self, count: u64) {
        match self.format {
            Format::Text => write_float(count as f64, self.out),
            // Writing to a string does not fail.
            Format::OpenMetrics => _ = write!(self.out, "{count}"),
        }
        self.out.push('\n');
    }

    fn number(&mut self, value: f64) {
        let start = self.out.len();
        write_float(value, self.out);
        let written = self.out.get(start..).unwrap_or_default();
        if self.format == Format::OpenMetrics && value.is_finite() && !written.contains(['.', 'e']) {
            self.out.push_str(".0");
        }
    }
}

/// As Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits, with an exponent below 1e-4 and from 1e6 up.
fn write_float(value: f64, out: &mut String) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    let start = out.len();
    // Writing to a string does not fail.
    let _ = write!(out, "{value:e}");
    let written = out.get(start..).unwrap_or_default();
    let Some((mantissa, exponent)) = written.split_once('e') else {
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa = mantissa.len();
    if (-4..6).contains(&exponent) {
        out.truncate(start);
        let _ = write!(out, "{value}");
    } else {
        out.truncate(start + mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
    }
}

/// Escapes a label's value.
pub(super) fn escape_label(value: &str, out: &mut String) {
    escape(value, true, out);
}

fn escape(text: &str, quotes: bool, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find(|c| matches!(c, '\\' | '\n') || (quotes && c == '"')) {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let mut chars = after.chars();
        out.push_str(match chars.next() {
            Some('\n') => "\\n",
            Some('"') => "\\\"",
            _ => "\\\\",
        });
        rest = chars.as_str();
    }
    out.push_str(rest);
}
