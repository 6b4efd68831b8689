//! Amounts of resources, parsed from the API's [`Quantity`] (`apimachinery/pkg/api/resource`).
//!
//! The API stores quantities as text: `100m`, `1.5`, `64Mi`, `1e3`. This module parses, compares, adds, rounds and
//! formats them.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A billion: the API's smallest unit is a nano.
const NANOS: i128 = 1_000_000_000;

/// An amount of a resource, in billionths. Finer fractions are rounded away from zero, as the API does. Larger values
/// than the API supports are capped at its maximum, 2⁶³ − 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amount {
    nanos: i128,
}

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0 };

    /// Whole units: bytes, CPUs.
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS,
        }
    }

    /// Thousandths: `milliCPU`.
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * (NANOS / 1000),
        }
    }

    /// Whole units, rounded up (`Quantity.Value`).
    pub fn value(self) -> i64 {
        self.scaled(NANOS)
    }

    /// Thousandths, rounded up (`Quantity.MilliValue`).
    pub fn milli_value(self) -> i64 {
        self.scaled(NANOS / 1000)
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is greater than zero.
    pub fn is_positive(self) -> bool {
        self.nanos > 0
    }

    /// Whether it is less than zero.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it has no fraction.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    /// Whether it is an integer multiple of `other`, which is positive.
    pub fn is_multiple_of(self, other: Self) -> bool {
        other.nanos > 0 && self.nanos % other.nanos == 0
    }

    /// Rounded up to thousandths: the API takes no finer amounts of resources.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        let rest = self.nanos.rem_euclid(NANOS / 1000);
        let up = if rest == 0 { 0 } else { NANOS / 1000 - rest };
        Self {
            nanos: self.nanos.saturating_add(up),
        }
    }

    /// The canonical text (`Quantity.String`): without a fraction, without loss of precision, with the largest suffix
    /// that fits.
    pub fn write(self, format: Format) -> String {
        // There is no binary suffix for fractions or for amounts below the first suffix.
        if format == Format::BinarySi && self.is_whole() && self.nanos.abs() >= 1024 * NANOS {
            let (value, power) = reduce(self.nanos / NANOS, 1024, 6);
            return format!("{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (value, power) = reduce(self.nanos, 1000, 9);
        match (format, power) {
            _ if value == 0 => "0".to_owned(),
            (_, 3) => value.to_string(),
            // `reduce` is limited to nine.
            (Format::DecimalExponent, power) => format!("{value}e{}", 3 * (power as i32 - 3)),
            (_, power) => format!(
                "{value}{}",
                ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power]
            ),
        }
    }

    fn scaled(self, unit: i128) -> i64 {
        let quotient = round_away_from_zero(self.nanos, unit);
        i64::try_from(quotient).unwrap_or(if quotient < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Divides by `base` as long as there is no remainder, at most `most` times; returns how often.
fn reduce(mut value: i128, base: i128, most: usize) -> (i128, usize) {
    let mut power = 0;
    while value != 0 && value % base == 0 && power < most {
        value /= base;
        power += 1;
    }
    (value, power)
}

/// The family of suffixes that a quantity is written with (`resource.Format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `k`, `M`, `G`… and `m` for thousandths.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`…
    BinarySi,
    /// `e3`, `e6`…
    DecimalExponent,
}

impl Format {
    /// The family of this quantity.
    pub fn of(quantity: &Quantity) -> Self {
        Self::of_text(&quantity.0)
    }

    fn of_text(text: &str) -> Self {
        let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c));
        if suffix.ends_with('i') {
            Self::BinarySi
        } else if suffix.len() > 1 && suffix.starts_with(['e', 'E']) {
            Self::DecimalExponent
        } else {
            Self::DecimalSi
        }
    }
}

/// Adds; the sum is capped at the largest amount.
impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
        }
    }
}

/// Subtracts; the difference may be negative.
impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
        }
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// An amount with the family of suffixes in which it was written, and is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenAmount {
    /// How much.
    pub amount: Amount,
    /// The family of suffixes.
    pub format: Format,
}

impl WrittenAmount {
    /// Rounded up to thousandths: the API takes no finer amounts of resources.
    #[must_use]
    pub fn round_up_to_milli(self) -> Self {
        Self {
            amount: self.amount.round_up_to_milli(),
            ..self
        }
    }
}

/// Zero takes on the format of what is added to it (`Quantity.Add`).
impl Add for WrittenAmount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let format = match self.amount.is_zero() {
            true => other.format,
            false => self.format,
        };
        Self {
            amount: self.amount + other.amount,
            format,
        }
    }
}

/// The canonical text (`Quantity.String`).
impl fmt::Display for WrittenAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.amount.write(self.format))
    }
}

/// In canonical form.
impl From<WrittenAmount> for Quantity {
    fn from(amount: WrittenAmount) -> Self {
        Self(amount.to_string())
    }
}

/// A quantity as the kubelet writes it, e.g. in a message: in canonical form (`Quantity.String`). A text that is not a
/// quantity is returned as it is.
pub fn canonical(quantity: &Quantity) -> String {
    WrittenAmount::try_from(quantity).map_or_else(|_| quantity.0.clone(), |amount| amount.to_string())
}

/// The text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseAmountError {
    text: String,
}

impl fmt::Display for ParseAmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a quantity", self.text)
    }
}

impl std::error::Error for ParseAmountError {}

impl FromStr for Amount {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, ParseAmountError> {
        parse(text).ok_or_else(|| ParseAmountError {
            text: text.to_owned(),
        })
    }
}

impl TryFrom<&Quantity> for Amount {
    type Error = ParseAmountError;

    fn try_from(quantity: &Quantity) -> Result<Self, ParseAmountError> {
        quantity.0.parse()
    }
}

impl FromStr for WrittenAmount {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, ParseAmountError> {
        Ok(Self {
            amount: text.parse()?,
            format: Format::of_text(text),
        })
    }
}

impl TryFrom<&Quantity> for WrittenAmount {
    type Error = ParseAmountError;

    fn try_from(quantity: &Quantity) -> Result<Self, ParseAmountError> {
        quantity.0.parse()
    }
}

/// `<sign><digits>[.<digits>]<suffix>`
fn parse(text: &str) -> Option<Amount> {
    let (negative, unsigned) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let suffix = Suffix::parse(suffix)?;
    let nanos = suffix.nanos(whole, fraction).min(i128::from(i64::MAX) * NANOS);
    Some(Amount {
        nanos: if negative { -nanos } else { nanos },
    })
}

/// The factor of the number before it.
enum Suffix {
    /// A power of 1024.
    Binary(u32),
    /// A power of ten.
    Decimal(i32),
}

impl Suffix {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "Ki" => Self::Binary(1),
            "Mi" => Self::Binary(2),
            "Gi" => Self::Binary(3),
            "Ti" => Self::Binary(4),
            "Pi" => Self::Binary(5),
            "Ei" => Self::Binary(6),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            exponent => Self::Decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }

    /// `whole.fraction` times the factor in nanos, rounded up; a very large value on overflow.
    fn nanos(&self, whole: &str, fraction: &str) -> i128 {
        let (factor, mut exponent) = match *self {
            Self::Binary(power) => (1024_i128.pow(power), 9),
            Self::Decimal(power) => (1, power.saturating_add(9)),
        };
        let (mut mantissa, mut rest) = (0, false);
        let fraction = fraction.trim_end_matches('0');
        let fits = i128::MAX / factor / 10 - 1;
        for (digits, places) in [(whole, 0), (fraction, 1)] {
            for digit in digits.bytes().map(|digit| i128::from(digit - b'0')) {
                if mantissa <= fits {
                    mantissa = mantissa * 10 + digit;
                    exponent = exponent.saturating_sub(places);
                } else {
                    rest |= digit != 0;
                    exponent = exponent.saturating_add(1 - places);
                }
            }
        }
        let mantissa = mantissa * factor;
        match 10_i128.checked_pow(exponent.unsigned_abs()) {
            _ if mantissa == 0 => 0,
            Some(scale) if exponent >= 0 => mantissa.saturating_mul(scale),
            Some(scale) => mantissa / scale + i128::from(rest || mantissa % scale != 0),
            // Less than a nano.
            None if exponent < 0 => 1,
            None => i128::MAX,
        }
    }
}

fn round_away_from_zero(value: i128, unit: i128) -> i128 {
    let quotient = value / unit;
    match value % unit {
        0 => quotient,
        rest => quotient + rest.signum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_amounts() {
        let cases = [
            // text, value, milli value
            ("0", 0, 0),
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1.5", 2, 1500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("0.1m", 1, 1),
            ("1n", 1, 1),
            ("0.0000000001", 1, 1),
            ("1e-30", 1, 1),
            ("64Mi", 67_108_864, 67_108_864_000),
            ("0.5Ki", 512, 512_000),
            ("1.1Ki", 1127, 1_126_400),
            ("2k", 2000, 2_000_000),
            ("1e3", 1000, 1_000_000),
            ("1E3", 1000, 1_000_000),
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("100E", i64::MAX, i64::MAX),
            ("1e400", i64::MAX, i64::MAX),
            ("-1500m", -2, -1500),
            ("+3", 3, 3000),
            ("0.1000000000000000000000000000000000000000000000001", 1, 101),
            ("0.10000000000000000000000000000000000000000000000000", 1, 100),
            (
                "1.5000000000000000000000000000000000000000000000001Ki",
                1537,
                1_536_001,
            ),
            (
                "100000000000000000000000000000000000000000000n",
                i64::MAX,
                i64::MAX,
            ),
            ("000000000000000000000000000000000000000000000001", 1, 1000),
            ("0.00000000000000000000000000000000000000000000001e48", 10, 10_000),
        ];
        for (text, value, milli) in cases {
            let amount = Amount::try_from(&Quantity(text.into())).unwrap();
            assert_eq!((amount.value(), amount.milli_value()), (value, milli), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_by_name() {
        for text in [
            "", " 1", "x", "m", ".", "1.2.3", "1 Mi", "1mi", "--1", "1K", "0x10", "e", "1ee3", "١",
        ] {
            let error = Amount::try_from(&Quantity(text.into())).unwrap_err();
            assert_eq!(error.to_string(), format!("{text:?} is not a quantity"));
        }
    }

    #[test]
    fn equal_amounts_are_equal_however_written() {
        let amount = |text: &str| Amount::try_from(&Quantity(text.into())).unwrap();
        assert_eq!(amount("1"), amount("1000m"));
        assert!(amount("1Gi") > amount("1G"));
        assert_eq!(amount("250m") + amount("750m"), Amount::from_units(1));
    }

    #[test]
    fn written_in_canonical_form() {
        for (text, canonical) in [
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
            ("2048Mi", "2Gi"),
            ("much", "much"),
        ] {
            assert_eq!(super::canonical(&Quantity(text.into())), canonical, "{text}");
        }
    }

    #[test]
    fn a_sum_keeps_the_format_of_the_first_unless_that_is_zero() {
        for (left, right, sum) in [
            ("64Mi", "64Mi", "128Mi"),
            ("1Gi", "1M", "1074741824"),
            ("1M", "1Mi", "2048576"),
            ("0", "5Mi", "5Mi"),
            ("1e3", "1e3", "2e3"),
        ] {
            let amount = |text: &str| text.parse::<WrittenAmount>().unwrap();
            assert_eq!(
                (amount(left) + amount(right)).to_string(),
                sum,
                "{left} + {right}"
            );
        }
    }

    #[test]
    fn differences_may_be_negative() {
        let units = |units| Amount::from_units(units);
        assert_eq!(units(1) - units(3), units(-2));
    }

    #[test]
    fn rounds_up_to_thousandths() {
        for (text, rounded) in [("0.0001", "1m"), ("1m", "1m"), ("1", "1"), ("-0.0001", "0")] {
            let amount = Amount::try_from(&Quantity(text.into())).unwrap();
            assert_eq!(
                amount.round_up_to_milli().write(Format::DecimalSi),
                rounded,
                "{text}"
            );
        }
    }
}
