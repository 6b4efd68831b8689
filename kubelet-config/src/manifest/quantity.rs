//! Quantities, as the API reads and writes them (`resource.Quantity`).

use std::cmp::Ordering;
use std::fmt;

/// What a quantity is counted in here: as fine as the API goes.
const NANO: i128 = 1_000_000_000;
/// No quantity is larger than this in magnitude.
const MAX: i128 = (i64::MAX as i128) * NANO;

/// A fixed-point number with the kind of suffix it was written with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    BinarySi,
    DecimalSi,
    DecimalExponent,
}

impl Quantity {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (factor, exponent, format) = suffix_value(suffix)?;
        let digits: String = [whole, fraction].concat();
        let nanos = scaled(
            &digits,
            exponent - i32::try_from(fraction.len()).ok()? + 9,
            factor,
        );
        let nanos = nanos.min(MAX);
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }

    /// Rounded up to thousandths, as the amounts of resources are.
    pub(super) fn round_up_to_milli(self) -> Self {
        const MILLI: i128 = NANO / 1000;
        let rest = self.nanos.rem_euclid(MILLI);
        let up = if rest == 0 {
            self.nanos
        } else {
            self.nanos - rest + MILLI
        };
        Self { nanos: up, ..self }
    }

    pub(super) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    pub(super) fn is_multiple_of(self, other: Self) -> bool {
        other.nanos > 0 && self.nanos % other.nanos == 0
    }

    pub(super) fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            nanos: (self.nanos + other.nanos).clamp(-MAX, MAX),
            format: if self.nanos == 0 {
                other.format
            } else {
                self.format
            },
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

/// The canonical form: no precision lost, no fraction, the largest suffix that fits.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let binary = self.format == Format::BinarySi && self.is_whole() && self.nanos.abs() >= 1024 * NANO;
        if binary {
            let (mut amount, mut power) = (self.nanos / NANO, 0);
            while amount % 1024 == 0 && power < 6 {
                amount /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
            return write!(f, "{amount}{suffix}");
        }
        let (mut amount, mut exponent) = (self.nanos, -9);
        while amount % 1000 == 0 && exponent < 18 {
            amount /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 {
                write!(f, "{amount}")
            } else {
                write!(f, "{amount}e{exponent}")
            };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{amount}{suffix}")
    }
}

/// The value of a suffix: a factor, a power of ten, and its kind.
fn suffix_value(suffix: &str) -> Option<(i128, i32, Format)> {
    let binary = |power| Some((1024_i128.pow(power), 0, Format::BinarySi));
    let decimal = |exponent| Some((1, exponent, Format::DecimalSi));
    match suffix {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Some((1, exponent.parse::<i8>().ok()?.into(), Format::DecimalExponent))
        }
    }
}

/// `digits * 10^exponent * factor`, rounded up to a whole number and capped.
fn scaled(digits: &str, exponent: i32, factor: i128) -> i128 {
    let digits = digits.trim_start_matches('0');
    let (mut value, mut lost) = (0_i128, false);
    let keep = usize::try_from(exponent.saturating_add(i32::try_from(digits.len()).unwrap_or(i32::MAX)))
        .unwrap_or(0)
        .min(digits.len());
    // Binary suffixes shift the point: what lies behind it still counts there.
    let kept = if factor > 1 {
        digits.len().min(keep + 9)
    } else {
        keep
    };
    for (index, digit) in digits.bytes().enumerate() {
        if index < kept {
            value = value.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        } else {
            lost |= digit != b'0';
        }
        if value > MAX.saturating_mul(1000) {
            return MAX;
        }
    }
    value = value.saturating_mul(factor);
    let shift = exponent.saturating_add(i32::try_from(digits.len() - kept).unwrap_or(i32::MAX));
    for _ in 0..shift.max(0) {
        value = value.saturating_mul(10);
        if value > MAX {
            return MAX;
        }
    }
    for _ in shift.min(0)..0 {
        lost |= value % 10 != 0;
        value /= 10;
    }
    value + i128::from(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form() {
        for (written, canonical) in [
            ("0", "0"),
            ("0m", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("1000Mi", "1000Mi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("0.1Mi", "104857600m"),
            ("1000", "1k"),
            ("12345", "12345"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("10e2", "1e3"),
            ("1500k", "1500k"),
            ("0.0000000001", "1n"),
            ("-5", "-5"),
            ("+5", "5"),
            ("100000000000000000000000000", "9223372036854775807"),
            ("9Ei", "9223372036854775807"),
        ] {
            assert_eq!(
                Quantity::parse(written).unwrap().to_string(),
                canonical,
                "{written}"
            );
        }
    }

    #[test]
    fn what_is_none() {
        for text in ["", "abc", "1x", "1.2.3", "-", "1 Gi", "e3", "1e", ".", "1mi"] {
            assert!(Quantity::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn rounds_up_to_thousandths() {
        let rounded = |text| Quantity::parse(text).unwrap().round_up_to_milli().to_string();
        assert_eq!(rounded("0.0001"), "1m");
        assert_eq!(rounded("1m"), "1m");
        assert_eq!(rounded("1"), "1");
    }
}
