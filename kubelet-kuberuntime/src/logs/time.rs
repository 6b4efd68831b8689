//! The time of a log line.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::DateTime;
use k8s_openapi::jiff::fmt::temporal::DateTimeParser;
use k8s_openapi::jiff::tz::Offset;

/// A time, in its original time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogTime<'a> {
    /// The text as runtimes write it, checked but not yet converted. Most requests need no more.
    Text(&'a [u8]),
    /// Any other.
    Parsed {
        /// The point in time.
        at: Timestamp,
        /// The time zone.
        offset: Offset,
    },
}

impl<'a> LogTime<'a> {
    /// Go's zero time: the beginning of the year 1.
    pub(super) const ZERO: Self = Self::Parsed {
        at: Timestamp::constant(-62_135_596_800, 0),
        offset: Offset::UTC,
    };

    /// Strict RFC 3339, with any number of digits after the seconds.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        match is_usual(text) {
            true => Some(Self::Text(text)),
            false => Self::parse_any(text),
        }
    }

    /// The same for a text that is not kept.
    pub(super) fn parse_any<'b>(text: &[u8]) -> Option<LogTime<'b>> {
        let (at, offset) = convert(text)?;
        Some(LogTime::Parsed { at, offset })
    }

    /// The point in time.
    pub(super) fn at(&self) -> Timestamp {
        match self {
            // It was checked.
            Self::Text(text) => convert(text).map_or(Timestamp::MIN, |(at, _)| at),
            Self::Parsed { at, .. } => *at,
        }
    }

    /// Adds the time with nine digits after the seconds (`RFC3339NanoFixed`).
    pub(super) fn write_fixed(&self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => {
                const NINE: &[u8] = b".000000000";
                // Without the zone `Z`.
                let time = &text[..text.len() - 1];
                out.extend_from_slice(time);
                out.extend_from_slice(&NINE[time.len() - SECONDS_END..]);
                out.push(b'Z');
            }
            Self::Parsed { at, offset } => {
                let zoned = at.to_zoned(offset.to_time_zone());
                let format = match *offset == Offset::UTC {
                    true => "%Y-%m-%dT%H:%M:%S.%9fZ",
                    false => "%Y-%m-%dT%H:%M:%S.%9f%:z",
                };
                out.extend_from_slice(zoned.strftime(format).to_string().as_bytes());
            }
        }
    }
}

/// Where the seconds end.
const SECONDS_END: usize = 19;

/// Whether the text is a valid time in UTC, with at most nine digits after the seconds and a day that each month has.
/// Others are parsed by the library.
fn is_usual(text: &[u8]) -> bool {
    const SHAPE: &[u8; SECONDS_END] = b"0000-00-00T00:00:00";
    let Some((time, fraction)) = text.split_at_checked(SECONDS_END) else {
        return false;
    };
    let has_shape = time.iter().zip(SHAPE).all(|(byte, shape)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == shape,
    });
    let two = |at: usize| (time[at].wrapping_sub(b'0')) * 10 + time[at + 1].wrapping_sub(b'0');
    has_shape
        && time[..4] != *b"0000"
        && (1..=12).contains(&two(5))
        && (1..=28).contains(&two(8))
        && two(11) < 24
        && two(14) < 60
        && two(17) < 60
        && match fraction {
            [b'Z'] => true,
            [b'.', digits @ .., b'Z'] => {
                (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
            }
            _ => false,
        }
}

fn convert(text: &[u8]) -> Option<(Timestamp, Offset)> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    let zone = match text {
        [.., b'Z'] => 1,
        [.., b'+' | b'-', _, _, b':', _, _] => 6,
        _ => return None,
    };
    let shape = text.get(..text.len() - zone)?;
    if shape.len() < SECONDS_END
        || shape[10] != b'T'
        || shape[SECONDS_END..].first().is_some_and(|byte| *byte != b'.')
    {
        return None;
    }
    let pieces = PARSER.parse_pieces(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    let local = DateTime::from_parts(pieces.date(), pieces.time()?);
    Some((offset.to_timestamp(local).ok()?, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(time: LogTime<'_>) -> String {
        let mut out = Vec::new();
        time.write_fixed(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn usual_times_are_as_the_library_has_them() {
        for text in [
            "2024-01-01T00:00:00Z",
            "2024-12-28T23:59:59.1Z",
            "2024-02-28T12:34:56.123456789Z",
            "0001-01-01T00:00:00.000000001Z",
            "9999-12-28T00:00:00Z",
        ] {
            let quick = LogTime::parse(text.as_bytes()).unwrap();
            let slow = LogTime::parse_any(text.as_bytes()).unwrap();
            assert_eq!(quick, LogTime::Text(text.as_bytes()));
            assert_eq!((quick.at(), fixed(quick)), (slow.at(), fixed(slow)), "{text}");
        }
    }

    #[test]
    fn others_are_for_the_library() {
        for text in [
            "2024-02-29T00:00:00Z",
            "2024-01-31T00:00:00.5Z",
            "2024-01-01T00:00:00.5+02:00",
            "2024-01-01T00:00:00+00:00",
        ] {
            let time = LogTime::parse(text.as_bytes()).unwrap();
            assert!(matches!(time, LogTime::Parsed { .. }), "{text}");
        }
        for text in [
            "",
            "Z",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00Z",
            "2024-01-01T00:00:0xZ",
        ] {
            assert_eq!(LogTime::parse(text.as_bytes()), None, "{text}");
        }
    }
}
