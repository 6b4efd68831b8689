//! The headers with which a client asks for less than a whole file.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, header};

/// What the conditions of a request demand.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Serve,
    NotModified,
    Failed,
}

/// Which bytes to serve.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    Of(Range<u64>),
    /// None of the bytes asked for exist, or the header is not understood.
    Unsatisfiable(&'static str),
}

/// Judges the conditions of a request for a file that has no entity tag.
pub(super) fn check(headers: &HeaderMap, modified: SystemTime) -> Condition {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let modified = whole_seconds(modified);
    if let Some(tags) = text(header::IF_MATCH) {
        if tags.trim() != "*" {
            return Condition::Failed;
        }
    } else if let Some(since) = time(headers, header::IF_UNMODIFIED_SINCE)
        && modified > since
    {
        return Condition::Failed;
    }
    match text(header::IF_NONE_MATCH) {
        Some(tags) if tags.trim() == "*" => Condition::NotModified,
        Some(_) => Condition::Serve,
        None => unmodified(headers, modified),
    }
}

/// Judges `If-Modified-Since` alone.
pub(super) fn unmodified(headers: &HeaderMap, modified: SystemTime) -> Condition {
    match time(headers, header::IF_MODIFIED_SINCE) {
        Some(since) if whole_seconds(modified) <= since => Condition::NotModified,
        _ => Condition::Serve,
    }
}

/// The bytes that the request asks for. Several ranges at once are answered with the whole file, which HTTP allows.
pub(super) fn part(headers: &HeaderMap, modified: SystemTime, size: u64) -> Part {
    const INVALID: Part = Part::Unsatisfiable("invalid range");
    let Some(range) = headers.get(header::RANGE) else {
        return Part::All;
    };
    if headers.contains_key(header::IF_RANGE)
        && time(headers, header::IF_RANGE) != Some(whole_seconds(modified))
    {
        return Part::All;
    }
    let Some(range) = range.to_str().ok().and_then(|range| range.strip_prefix("bytes=")) else {
        return INVALID;
    };
    let mut ranges = range.split(',').map(str::trim).filter(|range| !range.is_empty());
    let Some(range) = ranges.next() else {
        return Part::All;
    };
    if ranges.next().is_some() {
        return Part::All;
    }
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().ok()).flatten()
    };
    let Some((first, last)) = range.split_once('-') else {
        return INVALID;
    };
    let (start, end) = match (first.trim(), last.trim()) {
        // The last so many bytes.
        ("", suffix) => match number(suffix) {
            Some(length) => (size.saturating_sub(length), size),
            None => return INVALID,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(first), None) if last.is_empty() => (first, size),
            (Some(first), Some(last)) if last >= first => (first, last.saturating_add(1).min(size)),
            _ => return INVALID,
        },
    };
    if start >= size && size > 0 {
        return Part::Unsatisfiable("invalid range: failed to overlap");
    }
    // Nothing of an empty file is all of it.
    if size == 0 {
        Part::All
    } else {
        Part::Of(start..end)
    }
}

/// A time as HTTP writes it, without what it cannot say: fractions, and the beginning of Unix time, which means "unknown".
pub(super) fn last_modified(modified: SystemTime) -> Option<String> {
    (modified > UNIX_EPOCH).then(|| httpdate::fmt_http_date(modified))
}

fn time(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
