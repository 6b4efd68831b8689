//! Durations in Go's format, `1h30m`, `1.5s`: as the API, configuration files and messages write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A span of time, positive or negative, to the nanosecond, read and written as Go's `time.Duration`:
/// `1m30s`, `1.5h`, `-1s`, `0`.
///
/// ```
/// use kubelet_core::GoDuration;
///
/// let lease: GoDuration = "1.5m".parse()?;
/// assert_eq!(lease, GoDuration::from_secs(90));
/// assert_eq!(lease.to_string(), "1m30s");
/// # Ok::<(), kubelet_core::ParseGoDurationError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    nanos: i64,
}

impl GoDuration {
    /// None at all.
    pub const ZERO: Self = Self { nanos: 0 };

    /// So many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// So many milliseconds; no more than fit.
    pub const fn from_millis(millis: i64) -> Self {
        Self {
            nanos: millis.saturating_mul(MILLISECOND as i64),
        }
    }

    /// So many seconds; no more than fit.
    pub const fn from_secs(secs: i64) -> Self {
        Self {
            nanos: secs.saturating_mul(SECOND as i64),
        }
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    /// In seconds, with their fraction (`Seconds`).
    #[expect(clippy::cast_precision_loss, reason = "seconds are written as Go writes them")]
    pub fn as_secs_f64(self) -> f64 {
        let second = SECOND as i64;
        (self.nanos / second) as f64 + (self.nanos % second) as f64 / 1e9
    }

    /// Whether it is none at all.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it lies before none at all.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }
}

/// Fails for a negative duration.
impl TryFrom<GoDuration> for Duration {
    type Error = std::num::TryFromIntError;

    fn try_from(duration: GoDuration) -> Result<Self, Self::Error> {
        u64::try_from(duration.nanos).map(Duration::from_nanos)
    }
}

/// What does not fit is the longest that does, 292 years.
impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self {
            nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX),
        }
    }
}

/// The text is not a duration in Go's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseGoDurationError(String);

impl FromStr for GoDuration {
    type Err = ParseGoDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(ParseGoDurationError)
    }
}

/// What `time.ParseDuration` takes: signed sums of decimal numbers with a unit.
fn parse(text: &str) -> Result<GoDuration, String> {
    let invalid = || format!("invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(GoDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        if name.is_empty() {
            return Err(format!("missing unit in duration {text:?}"));
        }
        let unit = unit(name).ok_or_else(|| format!("unknown unit {name:?} in duration {text:?}"))?;
        let whole = if whole.is_empty() { "0" } else { whole };
        total = whole
            .parse::<u64>()
            .ok()
            .and_then(|whole| whole.checked_mul(unit))
            .and_then(|nanos| nanos.checked_add(fraction_of(fraction, unit)))
            .and_then(|nanos| total.checked_add(nanos))
            .filter(|nanos| *nanos <= i64::MIN.unsigned_abs())
            .ok_or_else(invalid)?;
        rest = after;
    }
    let nanos = if negative {
        0_i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    };
    nanos.map(GoDuration::from_nanos).ok_or_else(invalid)
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The nanoseconds in `0.digits` of a unit, cut off below.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut scale = 1.0_f64;
    let mut value: u64 = 0;
    for digit in digits.bytes() {
        let next = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u64::from(digit - b'0')))
            .filter(|value| *value <= i64::MIN.unsigned_abs());
        // No unit is finer than this.
        let Some(next) = next else { break };
        value = next;
        scale *= 10.0;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "Go rounds in the same way"
    )]
    let nanos = (value as f64 * (unit as f64 / scale)) as u64;
    nanos
}

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => 1,
        // Two letters look like this: the micro sign and the Greek mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// `1h0m0s`, `1.5s`, `100ms`, `0s`: below a second in the largest unit that is not a fraction.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        if nanos < MICROSECOND {
            return write!(f, "{nanos}ns");
        }
        if nanos < MILLISECOND {
            return write!(f, "{}µs", Decimal(nanos, MICROSECOND));
        }
        if nanos < SECOND {
            return write!(f, "{}ms", Decimal(nanos, MILLISECOND));
        }
        if nanos >= HOUR {
            write!(f, "{}h", nanos / HOUR)?;
        }
        if nanos >= MINUTE {
            write!(f, "{}m", nanos % HOUR / MINUTE)?;
        }
        write!(f, "{}s", Decimal(nanos % MINUTE, SECOND))
    }
}

/// Nanoseconds in a unit, with as many decimals as they need.
struct Decimal(u64, u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(nanos, unit) = *self;
        write!(f, "{}", nanos / unit)?;
        let rest = nanos % unit;
        if rest == 0 {
            return Ok(());
        }
        let width = unit.ilog10() as usize;
        let decimals = format!("{rest:0width$}");
        write!(f, ".{}", decimals.trim_end_matches('0'))
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_as_go() {
        for (text, nanos, written) in [
            ("0", 0, "0s"),
            ("+0", 0, "0s"),
            ("-0s", 0, "0s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("-1s", -1_000_000_000, "-1s"),
            ("+1s", 1_000_000_000, "1s"),
            (".5s", 500_000_000, "500ms"),
            ("5.s", 5_000_000_000, "5s"),
            ("100ms", 100_000_000, "100ms"),
            ("1.5us", 1_500, "1.5µs"),
            ("1µs2ns", 1_002, "1.002µs"),
            ("3μs", 3_000, "3µs"),
            ("12ns", 12, "12ns"),
            ("24h", 86_400_000_000_000, "24h0m0s"),
            ("1m1s1m", 121_000_000_000, "2m1s"),
            ("1.000000001s", 1_000_000_001, "1.000000001s"),
            ("2562047h47m16.854775807s", i64::MAX, "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", i64::MIN, "-2562047h47m16.854775808s"),
            ("0.9223372036854775807h", 3_320_413_933_267, "55m20.413933267s"),
            ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
        ] {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!(duration.as_nanos(), nanos, "{text}");
            assert_eq!(duration.to_string(), written, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_again(nanos: i64) {
            let duration = GoDuration::from_nanos(nanos);
            proptest::prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
        }

        #[test]
        fn no_text_is_too_odd(text in "[-+]?([0-9]{0,20}(\\.[0-9]{0,20})?(ns|us|µs|ms|s|m|h|d)?){0,4}") {
            if let Ok(duration) = text.parse::<GoDuration>() {
                proptest::prop_assert_eq!(duration.to_string().parse::<GoDuration>().unwrap(), duration);
            }
        }
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "-",
            "+",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "5",
            "1d",
            "1 s",
            " 1s",
            "1s ",
            "1e3s",
            "--1s",
            "1m-30s",
            "abc",
            "2562047h47m16.854775808s",
            "-2562047h47m16.854775809s",
            "9999999999999999999999s",
            "1\u{661}s",
        ] {
            let parsed = text.parse::<GoDuration>();
            assert!(parsed.is_err(), "{text:?} is {parsed:?}");
        }
    }
}
