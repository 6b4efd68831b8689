//! Quantities: parsed as Kubernetes parses them, written in their shortest form.

/// The maximum of a quantity, in billionths; larger ones become this.
const MAX_NANO: i128 = i64::MAX as i128 * NANO;

const NANO: i128 = 1_000_000_000;

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The decimal suffixes, from a billionth upwards.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";
const NUMERIC_WRONG: &str = "unable to parse numeric part of quantity";

/// The format in which a quantity was written, and in which it is written again.
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// The shortest form of a quantity: `1` for `1000m`, `1536Mi` for `1.5Gi`.
///
/// # Errors
///
/// What is invalid, in the API server's words.
pub(super) fn canonical(text: &str) -> Result<String, String> {
    let (nano, format) = parse(text.trim()).map_err(str::to_string)?;
    let small = nano.abs() < 1024 * NANO;
    Ok(match format {
        Format::Binary if !small => binary(nano),
        Format::Binary | Format::Decimal => decimal(nano, |e| DECIMAL[e].to_string()),
        Format::Exponent => decimal(nano, |e| match e {
            3 => String::new(),
            e => format!("e{}", e as i32 * 3 - 9),
        }),
    })
}

/// Reads a quantity in billionths; smaller parts are rounded up.
fn parse(text: &str) -> Result<(i128, Format), &'static str> {
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end_of_number = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end_of_number);
    if number.is_empty() || !suffix_fits(suffix) {
        return Err(FORMAT_WRONG);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err(FORMAT_WRONG);
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(NUMERIC_WRONG);
    }
    let (base_1024, exponent, format) = interpret(suffix).ok_or(SUFFIX_WRONG)?;

    let (mut mantissa, mut exponent) = (0i128, exponent + 9);
    for (digits, step) in [(whole, 0), (fraction, 1)] {
        for digit in digits.bytes() {
            // A number that does not fit counts as larger than the maximum, or smaller than the minimum.
            if mantissa < i128::MAX / 2_000_000_000_000 {
                mantissa = mantissa * 10 + i128::from(digit - b'0');
                exponent -= step;
            } else if step == 0 {
                exponent += 1;
            }
        }
    }
    let mut nano = mantissa.saturating_mul(1024i128.pow(base_1024));
    while exponent > 0 && nano != 0 && nano < MAX_NANO {
        nano = nano.saturating_mul(10);
        exponent -= 1;
    }
    let mut rest = false;
    while exponent < 0 && nano != 0 {
        rest |= nano % 10 != 0;
        nano /= 10;
        exponent += 1;
    }
    nano = (nano + i128::from(rest)).min(MAX_NANO);
    Ok((if negative { -nano } else { nano }, format))
}

/// Letters, then perhaps a sign, then digits.
fn suffix_fits(suffix: &str) -> bool {
    let digits = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// The power of 1024, the power of 10 and the format of a suffix.
fn interpret(suffix: &str) -> Option<(u32, i32, Format)> {
    if let Some(i) = DECIMAL.iter().position(|s| *s == suffix) {
        return Some((0, i as i32 * 3 - 9, Format::Decimal));
    }
    if let Some(i) = BINARY.iter().position(|s| *s == suffix) {
        return Some((i as u32, 0, Format::Binary));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((0, exponent.clamp(-1000, 1000), Format::Exponent))
}

fn binary(nano: i128) -> String {
    let mut n = nano / NANO;
    if nano % NANO != 0 {
        n += nano.signum();
    }
    let mut power = 0;
    while n % 1024 == 0 && power + 1 < BINARY.len() {
        n /= 1024;
        power += 1;
    }
    format!("{n}{}", BINARY[power])
}

fn decimal(nano: i128, suffix: impl Fn(usize) -> String) -> String {
    if nano == 0 {
        return "0".into();
    }
    let (mut n, mut power) = (nano, 0);
    while n % 1000 == 0 && power + 1 < DECIMAL.len() {
        n /= 1000;
        power += 1;
    }
    format!("{n}{}", suffix(power))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shortest_forms() {
        let cases = [
            ("0", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("+2", "2"),
            ("-1500m", "-1500m"),
            ("100000", "100k"),
            ("1.5Gi", "1536Mi"),
            ("512Ki", "512Ki"),
            ("1023", "1023"),
            ("0.5Ki", "512"),
            ("1024Mi", "1Gi"),
            ("9007199254740988Ki", "9007199254740988Ki"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("0.1n", "1n"),
            ("1e40", "9223372036854775807e0"),
            ("007", "7"),
            (".5", "500m"),
            ("1.", "1"),
        ];
        for (text, expected) in cases {
            // A quantity beyond the maximum keeps its format; an exponent of zero is not written.
            let expected = expected.trim_end_matches("e0");
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refusals() {
        let cases = [
            ("", FORMAT_WRONG),
            ("two", FORMAT_WRONG),
            ("1.2.3", FORMAT_WRONG),
            ("1 Gi", FORMAT_WRONG),
            ("1i", SUFFIX_WRONG),
            ("1KK", SUFFIX_WRONG),
            ("true", FORMAT_WRONG),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text), Err(expected.to_string()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn shortest_is_shortest(text in "[+-]?[0-9]{1,30}(\\.[0-9]{0,30})?(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,3})") {
            let shortest = canonical(&text).unwrap();
            let again = canonical(&shortest).unwrap();
            // A binary quantity that is no multiple of 1024 has no suffix, and is read as a decimal one: 1.953125Ki is 2000, then 2k.
            if shortest.ends_with('i') || !text.ends_with('i') {
                prop_assert_eq!(&again, &shortest);
            }
            prop_assert_eq!(canonical(&again).unwrap(), again);
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = canonical(&text);
        }
    }
}
