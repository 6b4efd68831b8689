//! Numbers as Go's `strconv` reads them.

const INVALID: &str = "invalid syntax";
const OUT_OF_RANGE: &str = "value out of range";

/// `strconv.ParseInt` with base 0: decimal, `0x`, `0o` or `0`, `0b`, with underscores between digits.
pub(super) fn parse_int<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    let error = |why| format!("parsing {text:?}: {why}");
    let (negative, unsigned) = split_sign(text);
    let (radix, digits) = split_radix(unsigned);
    // An underscore may also follow the prefix.
    let prefixed = digits.len() < unsigned.len();
    if !underscores_separate(digits, prefixed) {
        return Err(error(INVALID));
    }
    let number = parse_digits(&digits.replace('_', ""), radix).map_err(error)?;
    let number = if negative { -number } else { number };
    T::try_from(number).map_err(|_| error(OUT_OF_RANGE))
}

/// `strconv.Atoi`: decimal digits with or without a sign.
pub(super) fn parse_decimal<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    let error = |why| format!("parsing {text:?}: {why}");
    let (negative, digits) = split_sign(text);
    let number = parse_digits(digits, 10).map_err(error)?;
    let number = if negative { -number } else { number };
    T::try_from(number).map_err(|_| error(OUT_OF_RANGE))
}

/// The level of a log: decimal digits, no more than 31 bits.
pub(super) fn parse_level(text: &str) -> Result<u32, String> {
    let level = parse_digits(text, 10)
        .and_then(|number| i32::try_from(number).map_err(|_| OUT_OF_RANGE))
        .map_err(|why| format!("parsing {text:?}: {why}"))?;
    Ok(level.unsigned_abs())
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn split_radix(text: &str) -> (u32, &str) {
    let prefixes = [
        ("0x", 16),
        ("0X", 16),
        ("0o", 8),
        ("0O", 8),
        ("0b", 2),
        ("0B", 2),
        ("0", 8),
    ];
    let of_prefix = |&(prefix, radix): &(&str, u32)| match text.strip_prefix(prefix) {
        Some(digits) if !digits.is_empty() => Some((radix, digits)),
        _ => None,
    };
    prefixes.iter().find_map(of_prefix).unwrap_or((10, text))
}

fn underscores_separate(digits: &str, prefixed: bool) -> bool {
    let digits = match digits.strip_prefix('_') {
        Some(rest) if prefixed => rest,
        _ => digits,
    };
    !digits.starts_with('_') && !digits.ends_with('_') && !digits.contains("__")
}

/// Digits and nothing else. What exceeds 64 bits is as good as the most of these.
fn parse_digits(digits: &str, radix: u32) -> Result<i128, &'static str> {
    if digits.is_empty() {
        return Err(INVALID);
    }
    digits.chars().try_fold(0_i128, |number, c| {
        let digit = c.to_digit(radix).ok_or(INVALID)?;
        let number = number * i128::from(radix) + i128::from(digit);
        Ok(number.min(i128::from(u64::MAX)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        let cases: [(&str, Option<i32>); 30] = [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("+7", Some(7)),
            ("-7", Some(-7)),
            ("2147483647", Some(i32::MAX)),
            ("2147483648", None),
            ("-2147483648", Some(i32::MIN)),
            ("-2147483649", None),
            ("99999999999999999999999999999999999999999999999", None),
            ("0x1F", Some(31)),
            ("-0X1f", Some(-31)),
            ("0b101", Some(5)),
            ("0o17", Some(15)),
            ("017", Some(15)),
            ("08", None),
            ("0x", None),
            ("1_000", Some(1000)),
            ("0x_1f", Some(31)),
            ("0_7", Some(7)),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("0x__1", None),
            ("", None),
            ("-", None),
            ("--1", None),
            (" 1", None),
            ("1.0", None),
            ("1e3", None),
            ("x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_int::<i32>(text).ok(), expected, "{text:?}");
        }
        assert_eq!(parse_int::<i64>("-9223372036854775808"), Ok(i64::MIN));
        assert!(parse_int::<i64>("9223372036854775808").is_err());
    }

    #[test]
    fn decimals_and_levels() {
        assert_eq!(parse_decimal("+010"), Ok(10_i64));
        assert_eq!(parse_decimal("-1"), Ok(-1_i64));
        assert!(parse_decimal::<i64>("1_0").is_err());
        assert_eq!(parse_level("2147483647"), Ok(i32::MAX.unsigned_abs()));
        for text in ["2147483648", "-1", "+1", "", "0x1", "1_0"] {
            assert!(parse_level(text).is_err(), "{text:?}");
        }
    }
}
