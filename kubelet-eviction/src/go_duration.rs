//! Parses durations in Go's format, `1h30m`, `1.5s` (`time.ParseDuration`).

use std::time::Duration;

/// `None` for an invalid or negative duration.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, after) = rest.split_at(number);
        let unit = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanos += amount.parse::<f64>().ok()? * scale;
        rest = after;
    }
    Duration::try_from_secs_f64(nanos / 1e9).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let cases = [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("6h", Some(21_600_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5s", Some(1500)),
            ("300ms", Some(300)),
            ("", None),
            ("5", None),
            ("-5s", None),
            ("5x", None),
            ("1.2.3s", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
