//! Quantities: parsed as Kubernetes parses them, written in their shortest form.

use kubelet_core::quantity::WrittenAmount;

const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";
const NUMERIC_WRONG: &str = "unable to parse numeric part of quantity";

/// The shortest form of a quantity: `1` for `1000m`, `1536Mi` for `1.5Gi`.
///
/// # Errors
///
/// What is invalid, in the API server's words.
pub(super) fn canonical(text: &str) -> Result<String, String> {
    let text = text.trim();
    let amount = text.parse::<WrittenAmount>();
    amount
        .map(|amount| amount.to_string())
        .map_err(|_| problem(text).to_owned())
}

/// Why a text is not a quantity.
fn problem(text: &str) -> &'static str {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let suffix = unsigned.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &unsigned[..unsigned.len() - suffix.len()];
    if number.is_empty() || number.matches('.').count() > 1 || !suffix_fits(suffix) {
        FORMAT_WRONG
    } else if number == "." {
        NUMERIC_WRONG
    } else {
        SUFFIX_WRONG
    }
}

/// Letters, then perhaps a sign, then digits.
fn suffix_fits(suffix: &str) -> bool {
    let digits = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    digits.bytes().all(|b| b.is_ascii_digit())
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
            ("0.1Mi", "104857600m"),
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
            ("+.", NUMERIC_WRONG),
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
