//! The options of a log request, from its query (`PodLogOptions` as `ParameterCodec` decodes it).

use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{LogStreams, PodLogOptions};

use super::{parameter, parameters};

/// Decodes the options. An error means that the query cannot be decoded (status 400).
pub(crate) fn decode(query: &str) -> Result<Decoded, Undecodable> {
    let mut tail_lines = parameter(query, "tailLines");
    // The kubelet's older parameter.
    if let Some(tail) = parameter(query, "tail").filter(|tail| !tail.is_empty()) {
        tail_lines = Some(tail).filter(|tail| tail != "all");
    }
    let since_time = parameter(query, "sinceTime")
        .map(|text| time(&text))
        .transpose()?;
    let stream = parameter(query, "stream");
    let options = PodLogOptions {
        follow: boolean(query, "follow"),
        previous: boolean(query, "previous"),
        timestamps: boolean(query, "timestamps"),
        since_seconds: integer(parameter(query, "sinceSeconds"))?,
        since_time,
        tail_lines: integer(tail_lines)?,
        limit_bytes: integer(parameter(query, "limitBytes"))?,
        stream: match stream.as_deref() {
            Some("Stdout") => LogStreams::Stdout,
            Some("Stderr") => LogStreams::Stderr,
            _ => LogStreams::All,
        },
        ..PodLogOptions::default()
    };
    Ok(Decoded { options, stream })
}

/// The options, and the stream as the client named it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) options: PodLogOptions,
    pub(crate) stream: Option<String>,
}

impl Decoded {
    /// Whether the API refuses the options (status 422).
    pub(crate) fn is_invalid(&self) -> bool {
        let is_known = |stream: &str| matches!(stream, "All" | "Stdout" | "Stderr");
        !self.options.problems().is_empty() || self.stream.as_deref().is_some_and(|stream| !is_known(stream))
    }
}

/// The query cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable;

/// A flag without a value, or with any but `false` and `0`, is set (`Convert_Slice_string_To_bool`).
fn boolean(query: &str, name: &str) -> bool {
    parameters(query, name)
        .next()
        .is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
}

fn integer(value: Option<String>) -> Result<Option<i64>, Undecodable> {
    value
        .map(|value| value.parse().map_err(|_| Undecodable))
        .transpose()
}

/// A time of RFC 3339, as strict as in Go. An empty one is Go's zero time, before all others.
fn time(text: &str) -> Result<Timestamp, Undecodable> {
    if text.is_empty() || text == "null" {
        return Ok(Timestamp::MIN);
    }
    let bytes = text.as_bytes();
    let at = |place: usize| bytes.get(place).copied().unwrap_or_default();
    let offset = bytes.len().checked_sub(6).map_or(0, at);
    let is_strict = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
        .iter()
        .all(|(place, byte)| at(*place) == *byte)
        && (b'0'..b'6').contains(&at(17))
        && (bytes.last() == Some(&b'Z') || matches!(offset, b'+' | b'-'));
    if !is_strict {
        return Err(Undecodable);
    }
    text.parse().map_err(|_| Undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_as_the_api_decodes_them() {
        let valid = |query: &str| decode(query).map(|decoded| !decoded.is_invalid());
        for (query, expected) in [
            ("", Ok(true)),
            ("tailLines=3", Ok(true)),
            ("tailLines=%2B3", Ok(true)),
            ("tailLines=-1", Ok(false)),
            ("tailLines=x", Err(Undecodable)),
            ("tailLines=", Err(Undecodable)),
            ("tailLines=99999999999999999999", Err(Undecodable)),
            ("tailLines=x&tail=all", Ok(true)),
            ("tail=2", Ok(true)),
            ("limitBytes=0", Ok(false)),
            ("sinceSeconds=0", Ok(false)),
            ("sinceTime=nonsense", Err(Undecodable)),
            ("sinceTime=", Ok(true)),
            ("sinceTime=2026-11-23T04:20:44Z&sinceSeconds=1", Ok(false)),
            ("sinceTime=&sinceSeconds=1", Ok(false)),
            ("sinceTime=2026-11-23T04:20:44.5%2B01:00", Ok(true)),
            ("sinceTime=2026-11-23T04:20:44", Err(Undecodable)),
            ("sinceTime=2026-11-23%2004:20:44Z", Err(Undecodable)),
            ("sinceTime=2026-11-23T04:20:60Z", Err(Undecodable)),
            ("sinceTime=2026-11-23", Err(Undecodable)),
            ("tailLines=%2B%2B3", Err(Undecodable)),
            ("stream=Stderr", Ok(true)),
            ("stream=stderr", Ok(false)),
            ("stream=Stdout&tailLines=2", Ok(false)),
            ("unknown=1&pretty=true", Ok(true)),
        ] {
            assert_eq!(valid(query), expected, "{query}");
        }
    }

    #[test]
    fn flags() {
        let follow = |query: &str| decode(query).unwrap().options.follow;
        for (query, expected) in [
            ("follow=true", true),
            ("follow=1", true),
            ("follow=", true),
            ("follow=x", true),
            ("follow=false", false),
            ("follow=0", false),
            ("follow=FALSE", false),
            ("", false),
        ] {
            assert_eq!(follow(query), expected, "{query}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_query_breaks_the_decoder(query in ".*") {
            if let Ok(decoded) = decode(&query) {
                decoded.is_invalid();
            }
        }
    }
}
