//! Writes metrics in the text format of Prometheus, byte for byte as its Go library does.

use std::fmt::Write;

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// A number, in the unit in which it was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(u64),
    Signed(i64),
    Float(f64),
    /// Shown as seconds.
    Nanoseconds(u64),
    /// Shown as seconds.
    Microseconds(u64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

/// Appends metrics to one buffer.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
}

impl Text {
    /// A buffer for this many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            out: String::with_capacity(bytes),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out.into_bytes()
    }

    /// The lines before the series of a metric.
    pub(super) fn header(&mut self, name: &str, kind: Kind, help: &str) {
        self.push_all(["# HELP ", name, " "]);
        escape(help, false, &mut self.out);
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.push_all(["\n# TYPE ", name, " ", kind, "\n"]);
    }

    /// A metric without labels.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: Number, at: Option<i64>) {
        self.header(name, kind, help);
        self.push_all([name, " "]);
        self.value(value, at);
    }

    /// One series. The parts of `labels` are written one after the other, with the commas that they contain. The time is in
    /// milliseconds.
    pub(super) fn series<const N: usize>(
        &mut self,
        name: &str,
        labels: [&str; N],
        value: Number,
        at: Option<i64>,
    ) {
        self.out.push_str(name);
        if labels.iter().any(|part| !part.is_empty()) {
            self.out.push('{');
            self.push_all(labels);
            self.out.push('}');
        }
        self.out.push(' ');
        self.value(value, at);
    }

    fn push_all<const N: usize>(&mut self, parts: [&str; N]) {
        for part in parts {
            self.out.push_str(part);
        }
    }

    fn value(&mut self, value: Number, at: Option<i64>) {
        match value {
            Number::Whole(value) => write_whole(value, &mut self.out),
            Number::Signed(value) if value >= 0 => write_whole(value.unsigned_abs(), &mut self.out),
            Number::Signed(value) => {
                self.out.push('-');
                write_whole(value.unsigned_abs(), &mut self.out);
            }
            Number::Float(value) => write_float(value, &mut self.out),
            Number::Nanoseconds(0) | Number::Microseconds(0) => self.out.push('0'),
            Number::Nanoseconds(value) => write_float(value as f64 / 1e9, &mut self.out),
            Number::Microseconds(value) => write_float(value as f64 / 1e6, &mut self.out),
        }
        if let Some(at) = at {
            self.out.push(' ');
            // Writing to a string does not fail.
            let _ = write!(self.out, "{at}");
        }
        self.out.push('\n');
    }
}

/// Appends `name="value"`.
pub(super) fn push_label(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push_str("=\"");
    escape(value, true, out);
    out.push('"');
}

/// A whole number, as [`write_float`] writes it.
fn write_whole(value: u64, out: &mut String) {
    // From a million on with an exponent. Above 2⁵³ not every number is a float.
    if value < 1_000_000 {
        let _ = write!(out, "{value}");
        return;
    }
    if value >= 1 << 53 {
        return write_float(value as f64, out);
    }
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = value;
    while rest > 0 {
        start -= 1;
        if let Some(digit) = digits.get_mut(start) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
    }
    let written = digits.get(start..).unwrap_or_default();
    let exponent = written.len() - 1;
    let kept = written.iter().rposition(|digit| *digit != b'0').unwrap_or(0) + 1;
    for (at, digit) in written.iter().take(kept).enumerate() {
        if at == 1 {
            out.push('.');
        }
        out.push(char::from(*digit));
    }
    let _ = write!(out, "e+{exponent:02}");
}

/// As Go's `strconv.FormatFloat(value, 'g', -1, 64)`: the shortest digits, with an exponent below 1e-4 and from 1e6 up.
fn write_float(value: f64, out: &mut String) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    if value.is_infinite() {
        return out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    if value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
        let _ = write!(out, "{value}");
        return;
    }
    let start = out.len();
    let _ = write!(out, "{value:e}");
    let Some(at) = out.get(start..).and_then(|written| written.find('e')) else {
        return;
    };
    let exponent: i32 = out
        .get(start + at + 1..)
        .and_then(|exponent| exponent.parse().ok())
        .unwrap_or(0);
    out.truncate(start + at);
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_go_writes_them() {
        for (number, text) in [
            (Number::Whole(0), "0"),
            (Number::Whole(999_999), "999999"),
            (Number::Whole(1_000_000), "1e+06"),
            (Number::Whole(1_048_576), "1.048576e+06"),
            (Number::Whole(25_276_510_208), "2.5276510208e+10"),
            (Number::Whole(u64::MAX), "1.8446744073709552e+19"),
            (Number::Signed(-1), "-1"),
            (Number::Signed(-62_135_596_800), "-6.21355968e+10"),
            (Number::Nanoseconds(94_012_311), "0.094012311"),
            (Number::Nanoseconds(7_320_892_261_352), "7320.892261352"),
            (Number::Nanoseconds(10_000), "1e-05"),
            (Number::Nanoseconds(100_000), "0.0001"),
            (Number::Nanoseconds(2_000_000_000), "2"),
            (Number::Microseconds(1_500_000), "1.5"),
            (Number::Float(1_795_412_471.613_852_5), "1.7954124716138525e+09"),
            (Number::Float(f64::NAN), "NaN"),
        ] {
            let mut out = Text::default();
            out.single("n", Kind::Gauge, "h", number, None);
            let written = out.out.lines().last().unwrap_or_default();
            assert_eq!(written, format!("n {text}"));
        }
    }

    #[test]
    fn labels_and_help_are_escaped() {
        let mut label = String::new();
        push_label(&mut label, "image", "a\"b\\c\nd");
        assert_eq!(label, r#"image="a\"b\\c\nd""#);
        let mut out = Text::default();
        out.header("n", Kind::Counter, "a \"b\"\nc");
        assert_eq!(out.out, "# HELP n a \"b\"\\nc\n# TYPE n counter\n");
    }
}
