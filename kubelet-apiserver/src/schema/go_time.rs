//! Times as the API reads and writes them: RFC 3339, `Time` in seconds, `MicroTime` in microseconds, both in UTC.

use k8s_openapi::jiff::Timestamp;

/// The parts of both layouts up to the fraction; literals must match exactly.
const PIECES: [&str; 11] = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];

/// Reads a time; with `micro` the fraction must have exactly six digits.
///
/// # Errors
///
/// The part that cannot be read, in Go's words.
pub(crate) fn parse(text: &str, micro: bool) -> Result<Timestamp, String> {
    let layout = if micro {
        "2006-01-02T15:04:05.000000Z07:00"
    } else {
        "2006-01-02T15:04:05Z07:00"
    };
    let failed = |rest: &str, piece: &str| {
        Err(format!(
            "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {piece:?}"
        ))
    };
    let mut rest = text;
    for piece in PIECES {
        let literal = piece.len() == 1;
        let fits = if literal {
            rest.starts_with(piece)
        } else {
            rest.len() >= piece.len() && rest.bytes().take(piece.len()).all(|b| b.is_ascii_digit())
        };
        if !fits {
            return failed(rest, piece);
        }
        if let Some(what) = out_of_range(piece, &rest[..piece.len()]) {
            return Err(format!("parsing time {text:?}: {what} out of range"));
        }
        rest = &rest[piece.len()..];
    }
    if micro {
        let digits = rest.bytes().skip(1).take(6).filter(u8::is_ascii_digit).count();
        if !rest.starts_with(['.', ',']) || digits < 6 {
            return failed(rest, ".000000");
        }
        rest = &rest[7..];
    } else if rest.starts_with(['.', ',']) && rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
        rest = rest[1..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let zone = rest.as_bytes();
    let offset = match zone {
        [b'Z', ..] => 1,
        [b'+' | b'-', a, b, b':', c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_digit()) => 6,
        _ => return failed(rest, "Z07:00"),
    };
    if rest.len() > offset {
        let extra = &rest[offset..];
        return Err(format!("parsing time {text:?}: extra text: {extra:?}"));
    }
    text.replacen(',', ".", 1)
        .parse()
        .map_err(|_| format!("parsing time {text:?}: day out of range"))
}

/// Go checks most ranges while it reads, but the day of the month at the end.
fn out_of_range(piece: &str, digits: &str) -> Option<&'static str> {
    let n: u32 = digits.parse().ok()?;
    match piece {
        "01" if n == 0 || n > 12 => Some("month"),
        "02" if n == 0 || n > 31 => Some("day"),
        "15" if n > 23 => Some("hour"),
        "04" if n > 59 => Some("minute"),
        "05" if n > 59 => Some("second"),
        _ => None,
    }
}

/// Writes a time.
pub(crate) fn format(at: Timestamp, micro: bool) -> String {
    if micro {
        at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    } else {
        at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written_in_utc() {
        let cases = [
            ("2026-01-01T00:00:00Z", false, "2026-01-01T00:00:00Z"),
            ("2026-01-01T01:30:00.75+02:00", false, "2025-12-31T23:30:00Z"),
            ("2026-01-01T00:00:00.000001Z", true, "2026-01-01T00:00:00.000001Z"),
        ];
        for (text, micro, expected) in cases {
            assert_eq!(format(parse(text, micro).unwrap(), micro), expected);
        }
    }

    #[test]
    fn refused_in_the_words_of_go() {
        let cases = [
            ("", false, "cannot parse \"\" as \"2006\""),
            ("2026-1-01", false, "cannot parse \"1-01\" as \"01\""),
            (
                "2026-01-01 00:00:00Z",
                false,
                "cannot parse \" 00:00:00Z\" as \"T\"",
            ),
            ("2026-01-01T00:00:00", false, "cannot parse \"\" as \"Z07:00\""),
            ("2026-01-01T00:00:00Z", true, "cannot parse \"Z\" as \".000000\""),
            ("2026-13-01T00:00:00Z", false, "month out of range"),
            ("2026-02-30T00:00:00Z", false, "day out of range"),
            ("2026-01-01T00:00:00Zulu", false, "extra text: \"ulu\""),
            ("日本", false, "cannot parse \"日本\" as \"2006\""),
        ];
        for (text, micro, expected) in cases {
            let message = parse(text, micro).unwrap_err();
            assert!(message.ends_with(expected), "{message}");
        }
    }
}
