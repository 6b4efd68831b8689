//! Quantities as Go holds them in memory (`apimachinery/pkg/api/resource`).
//!
//! Two ways to write one amount differ there: `1` and `1000m`, `1Gi` and `1024Mi`. What is rounded or added differs from
//! what was written so from the start.

use std::fmt::Write;

use super::natural::Natural;

const DECIMAL_SI: &str = "DecimalSI";
const DECIMAL_EXPONENT: &str = "DecimalExponent";
const BINARY_SI: &str = "BinarySI";

const MILLI: i32 = -3;
const NANO: i32 = -9;
/// Go holds amounts of up to so many digits in one word.
const WORD_DIGITS: i64 = 18;
/// The same for amounts with a binary suffix.
const BINARY_WORD_DIGITS: i64 = 15;
/// No sensible quantity has a larger exponent or more digits, and so no number becomes large beyond reason.
const MAX_EXPONENT: u32 = 1000;
/// The largest amount with a binary suffix.
const MAX_BINARY: u64 = i64::MAX as u64;

/// A quantity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GoQuantity {
    amount: Amount,
    /// The text, where it is the canonical one, and the amount has not changed since.
    text: String,
    format: &'static str,
}

/// `value * 10^scale`. Go counts the digits of a decimal from the other side, with `-scale`.
#[derive(Clone, Debug, PartialEq)]
enum Amount {
    Word { value: i64, scale: i32 },
    Decimal(Decimal),
}

#[derive(Clone, Debug, PartialEq)]
struct Decimal {
    negative: bool,
    value: Natural,
    scale: i32,
}

impl Amount {
    fn decimal(&self) -> Decimal {
        match self {
            Self::Word { value, scale } => Decimal {
                negative: *value < 0,
                value: Natural::from(value.unsigned_abs()),
                scale: *scale,
            },
            Self::Decimal(decimal) => decimal.clone(),
        }
    }
}

impl Default for Amount {
    fn default() -> Self {
        Self::Word { value: 0, scale: 0 }
    }
}

/// The parts of a written quantity.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl GoQuantity {
    /// Parses a quantity, as it was written. `None` if it is none, or beyond reason.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let parts = parts(text)?;
        let (base, exponent, format) = suffix(parts.suffix)?;
        if let Some((value, scale)) = in_a_word(&parts, base, exponent) {
            let canonical = text == "0" || is_canonical(&parts, base, exponent, scale);
            return Some(Self {
                amount: Amount::Word { value, scale },
                text: if canonical { text.into() } else { String::new() },
                format,
            });
        }
        let digits = format!("{}{}", parts.whole, parts.fraction);
        if exponent.unsigned_abs().max(u32::try_from(digits.len()).ok()?) > MAX_EXPONENT {
            return None;
        }
        let mut decimal = Decimal {
            negative: parts.negative,
            value: Natural::from_digits(&digits)?,
            scale: -i32::try_from(parts.fraction.len()).ok()?,
        };
        if base == 10 {
            decimal.scale += exponent;
        } else {
            decimal.value = (0..exponent).fold(decimal.value, |value, _| value.times(2));
        }
        if !decimal.value.is_zero() {
            decimal = decimal.with_scale(NANO);
        }
        let mut format = format;
        if format == BINARY_SI && decimal.scale == NANO {
            let unit = Natural::from(1_000_000_000);
            if decimal.value > Natural::from(MAX_BINARY).times(1_000_000_000) {
                decimal.value = Natural::from(MAX_BINARY);
                decimal.scale = 0;
            } else if !decimal.value.is_zero() && decimal.value < unit {
                format = DECIMAL_SI;
            }
        }
        decimal.negative &= !decimal.value.is_zero();
        Some(Self {
            amount: Amount::Decimal(decimal),
            text: String::new(),
            format,
        })
    }

    /// Rounds up to thousandths (`RoundUp`).
    #[must_use]
    pub(super) fn round_up_to_milli(mut self) -> Self {
        match &mut self.amount {
            Amount::Word { scale, .. } if *scale >= MILLI => {}
            Amount::Word { value, scale } => {
                *value = round_away_from_zero(*value, MILLI.abs_diff(*scale));
                *scale = MILLI;
                self.text.clear();
            }
            Amount::Decimal(decimal) => {
                *decimal = decimal.clone().with_scale(MILLI);
                self.text.clear();
            }
        }
        self
    }

    /// The sum (`Add`). `None` if it is beyond reason.
    pub(super) fn plus(self, other: &Self) -> Option<Self> {
        let mut format = self.format;
        if self.is_zero() {
            format = other.format;
        }
        let sum = |amount| {
            let text = String::new();
            Some(Self { amount, text, format })
        };
        if let (Amount::Word { value: a, scale: b }, Amount::Word { value: c, scale: d }) =
            (&self.amount, &other.amount)
            && let Some((value, scale)) = add((*a, *b), (*c, *d))
        {
            return sum(Amount::Word { value, scale });
        }
        let (a, b) = same_scale(&self.amount, &other.amount)?;
        if a.negative || b.negative {
            return None;
        }
        sum(Amount::Decimal(Decimal {
            negative: false,
            value: a.value.plus(&b.value),
            scale: a.scale,
        }))
    }

    /// Whether it is more than the other (`Cmp`). `None` if that is beyond reason.
    ///
    /// If one of the two is in no word, Go leaves this one in none either.
    pub(super) fn is_more_than(&mut self, other: &Self) -> Option<bool> {
        let words = [&self.amount, &other.amount].map(|amount| matches!(amount, Amount::Word { .. }));
        let (a, b) = same_scale(&self.amount, &other.amount)?;
        if words != [true, true] {
            self.amount = Amount::Decimal(self.amount.decimal());
        }
        Some(match (a.negative, b.negative) {
            (false, false) => a.value > b.value,
            (true, true) => a.value < b.value,
            (negative, _) => !negative,
        })
    }

    fn is_zero(&self) -> bool {
        match &self.amount {
            Amount::Word { value, .. } => *value == 0,
            Amount::Decimal(decimal) => decimal.value.is_zero(),
        }
    }

    /// Writes its dump.
    pub(super) fn dump(&self, out: &mut String) {
        let (value, scale) = match &self.amount {
            Amount::Word { value, scale } => (*value, *scale),
            Amount::Decimal(_) => (0, 0),
        };
        let _ = write!(
            out,
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)"
        );
        match &self.amount {
            Amount::Word { .. } => out.push_str("<nil>"),
            Amount::Decimal(decimal) => {
                let words: Vec<_> = decimal.value.words().iter().map(u64::to_string).collect();
                let words = match words.join(" ") {
                    none if none.is_empty() => "<nil>".into(),
                    words => format!("[{words}]"),
                };
                let (negative, scale) = (decimal.negative, -decimal.scale);
                let _ = write!(
                    out,
                    "{{unscaled:(big.Int){{neg:(bool){negative} abs:(big.nat){words}}} scale:(inf.Scale){scale}}}"
                );
            }
        }
        let _ = write!(
            out,
            "}} s:(string){} Format:(resource.Format){}}}",
            self.text, self.format
        );
    }
}

impl Decimal {
    /// Rounds away from zero.
    fn with_scale(mut self, scale: i32) -> Self {
        let mut exact = true;
        while self.scale < scale {
            let (tenth, whole) = self.value.tenth();
            exact &= whole;
            self.value = tenth;
            self.scale += 1;
        }
        if !exact {
            self.value = self.value.plus_word(1);
        }
        while self.scale > scale {
            self.value = self.value.times(10);
            self.scale -= 1;
        }
        self
    }
}

fn parts(text: &str) -> Option<Parts<'_>> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let digits = unsigned.trim_start_matches('0');
    let end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = digits.split_at(end(digits));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(end(rest)),
        None => ("", rest),
    };
    Some(Parts {
        negative: negative && !digits.is_empty(),
        whole: if whole.is_empty() { "0" } else { whole },
        fraction,
        suffix,
    })
}

/// The base, the exponent and the family of a suffix.
fn suffix(suffix: &str) -> Option<(u32, i32, &'static str)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(index) = decimal.iter().position(|known| *known == suffix) {
        return Some((10, 3 * i32::try_from(index).ok()? + NANO, DECIMAL_SI));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(index) = binary.iter().position(|known| *known == suffix) {
        return Some((2, 10 * i32::try_from(index + 1).ok()?, BINARY_SI));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((10, exponent, DECIMAL_EXPONENT))
}

/// The value and the scale, if Go holds them in a word.
fn in_a_word(parts: &Parts<'_>, base: u32, exponent: i32) -> Option<(i64, i32)> {
    let (whole, fraction) = (parts.whole.len() as i64, parts.fraction.len() as i64);
    let (mut scale, mut factor) = (exponent, 1);
    let room = if base == 10 {
        WORD_DIGITS - whole - fraction
    } else if parts.fraction.is_empty() {
        scale = 0;
        factor = 1_i64.checked_shl(exponent.unsigned_abs())?;
        BINARY_WORD_DIGITS - whole - i64::from(exponent) * 3 / 10 - 1
    } else {
        return None;
    };
    scale = scale.checked_sub(i32::try_from(fraction).ok()?)?;
    if room < 0 || scale < NANO {
        return None;
    }
    let value: i64 = format!("{}{}", parts.whole, parts.fraction).parse().ok()?;
    let value = value.checked_mul(factor)?;
    Some((if parts.negative { -value } else { value }, scale))
}

/// Whether Go takes the text for the canonical one, and keeps it.
fn is_canonical(parts: &Parts<'_>, base: u32, exponent: i32, scale: i32) -> bool {
    let digits = format!("{}{}", parts.whole, parts.fraction);
    if base == 2 {
        let value: i64 = digits.parse().unwrap_or_default();
        return exponent % 10 == 0 && value & 7 != 0;
    }
    scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
}

fn round_away_from_zero(value: i64, digits: u32) -> i64 {
    let Some(unit) = 10_i64.checked_pow(digits) else {
        return value.signum();
    };
    value / unit + (value % unit).signum()
}

/// The sum of two words, if it is one.
fn add((a, a_scale): (i64, i32), (b, b_scale): (i64, i32)) -> Option<(i64, i32)> {
    if b == 0 {
        return Some((a, a_scale));
    }
    if a == 0 {
        return Some((b, b_scale));
    }
    let scale = a_scale.min(b_scale);
    let scaled = |value: i64, from: i32| value.checked_mul(10_i64.checked_pow(from.abs_diff(scale))?);
    Some((scaled(a, a_scale)?.checked_add(scaled(b, b_scale)?)?, scale))
}

/// Both amounts with the finer scale of the two.
fn same_scale(a: &Amount, b: &Amount) -> Option<(Decimal, Decimal)> {
    let (a, b) = (a.decimal(), b.decimal());
    let scale = a.scale.min(b.scale);
    if [a.scale, b.scale]
        .iter()
        .any(|scale| scale.unsigned_abs() > 2 * MAX_EXPONENT)
    {
        return None;
    }
    Some((a.with_scale(scale), b.with_scale(scale)))
}
