//! Parses one line of a log file, in CRI's format or in Docker's.

use std::borrow::Cow;

use serde::Deserialize;

use super::time::LogTime;

/// One line of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) time: LogTime<'a>,
    /// `stdout` or `stderr`; in Docker's format any text.
    pub(super) stream: Cow<'a, str>,
    /// The container's output, with the line end if the container wrote it.
    pub(super) text: Cow<'a, [u8]>,
    /// Whether the container's line continues in the next entry.
    pub(super) partial: bool,
}

/// The format of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `<time> <stdout|stderr> <tag>[:<tag>…] <text>`
    Cri,
    /// `{"log":…,"stream":…,"time":…}`
    DockerJson,
}

impl Format {
    /// The first format that can parse the line (`getParseFunc`).
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        [Self::Cri, Self::DockerJson]
            .into_iter()
            .find(|format| format.parse(line).is_ok())
    }

    /// Parses a line; an error is the kubelet's message.
    pub(super) fn parse<'a>(self, line: &'a [u8]) -> Result<Entry<'a>, String> {
        match self {
            Self::Cri => cri(line),
            Self::DockerJson => docker_json(line),
        }
    }
}

/// `parseCRILog`
fn cri(line: &[u8]) -> Result<Entry<'_>, String> {
    let (time, rest) = cut(line).ok_or("timestamp is not found")?;
    let time = LogTime::parse(time)
        .ok_or_else(|| format!("unexpected timestamp format {:?}", String::from_utf8_lossy(time)))?;
    let (stream, rest) = cut(rest).ok_or("stream type is not found")?;
    let stream = match stream {
        b"stdout" => "stdout",
        b"stderr" => "stderr",
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(format!("unexpected stream type {other:?}"));
        }
    };
    let (tags, text) = cut(rest).ok_or("log tag is not found")?;
    // A later version may have more tags.
    let partial = tags == b"P" || tags.starts_with(b"P:");
    let text = match text.strip_suffix(b"\n") {
        Some(text) if partial => text,
        _ => text,
    };
    Ok(Entry {
        time,
        stream: stream.into(),
        text: text.into(),
        partial,
    })
}

fn cut(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b' ', line)?;
    Some((&line[..at], &line[at + 1..]))
}

/// `jsonLog`
#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonLog {
    log: Option<String>,
    stream: Option<String>,
    time: Option<String>,
}

/// `parseDockerJSONLog`
fn docker_json(line: &[u8]) -> Result<Entry<'_>, String> {
    let failed = |error: String| format!("failed with {error} to unmarshal log");
    let json: Option<JsonLog> = serde_json::from_slice(line).map_err(|error| failed(error.to_string()))?;
    let json = json.unwrap_or_default();
    let time = match &json.time {
        None => LogTime::ZERO,
        Some(time) => {
            LogTime::parse_any(time.as_bytes()).ok_or_else(|| failed(format!("parsing time {time:?}")))?
        }
    };
    Ok(Entry {
        time,
        stream: json.stream.unwrap_or_default().into(),
        text: json.log.unwrap_or_default().into_bytes().into(),
        partial: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> Result<(String, String, String, bool), String> {
        let entry = Format::Cri.parse(line.as_bytes())?;
        let text = String::from_utf8_lossy(&entry.text).into_owned();
        Ok((fixed(&entry), entry.stream.into_owned(), text, entry.partial))
    }

    fn fixed(entry: &Entry<'_>) -> String {
        let mut out = Vec::new();
        entry.time.write_fixed(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_of_cri() {
        for (line, time, stream, text, partial) in [
            (
                "2016-10-20T18:39:20.57606443Z stdout F cri\n",
                "2016-10-20T18:39:20.576064430Z",
                "stdout",
                "cri\n",
                false,
            ),
            (
                "2016-10-20T18:39:20.57606443Z stderr P cri\n",
                "2016-10-20T18:39:20.576064430Z",
                "stderr",
                "cri",
                true,
            ),
            (
                "2016-10-20T18:39:20Z stdout P:X  a b\n",
                "2016-10-20T18:39:20.000000000Z",
                "stdout",
                " a b",
                true,
            ),
            (
                "2016-10-20T20:39:20.5+02:00 stdout F:X \n",
                "2016-10-20T20:39:20.500000000+02:00",
                "stdout",
                "\n",
                false,
            ),
            (
                "2016-10-20T20:39:20.5-00:30 stdout FX no end",
                "2016-10-20T20:39:20.500000000-00:30",
                "stdout",
                "no end",
                false,
            ),
            (
                "2016-10-20T20:39:20.5+00:00 stdout F x",
                "2016-10-20T20:39:20.500000000Z",
                "stdout",
                "x",
                false,
            ),
        ] {
            let expected = (time.to_owned(), stream.to_owned(), text.to_owned(), partial);
            assert_eq!(entry(line), Ok(expected), "{line:?}");
        }
        for (line, error) in [
            ("nothing\n", "timestamp is not found"),
            (
                "yesterday stdout F x\n",
                "unexpected timestamp format \"yesterday\"",
            ),
            (
                "2016-10-20t18:39:20Z stdout F x\n",
                "unexpected timestamp format \"2016-10-20t18:39:20Z\"",
            ),
            (
                "2016-10-20T18:39:20 stdout F x\n",
                "unexpected timestamp format \"2016-10-20T18:39:20\"",
            ),
            ("2016-10-20T18:39:20Z stdout", "stream type is not found"),
            (
                "2016-10-20T18:39:20Z stdin F x",
                "unexpected stream type \"stdin\"",
            ),
            ("2016-10-20T18:39:20Z stdout F", "log tag is not found"),
        ] {
            assert_eq!(entry(line), Err(error.to_owned()));
        }
    }

    #[test]
    fn lines_of_docker() {
        let line = br#"{"log":"docker \u00e9\n","stream":"stderr","time":"2016-10-20T18:39:20.57606443Z"}"#;
        assert_eq!(Format::of(line), Some(Format::DockerJson));
        let entry = Format::DockerJson.parse(line).unwrap();
        assert_eq!(
            (entry.stream.as_ref(), entry.text.as_ref()),
            ("stderr", "docker é\n".as_bytes())
        );
        assert_eq!(fixed(&entry), "2016-10-20T18:39:20.576064430Z");
        let bare = Format::DockerJson.parse(b"{}").unwrap();
        assert_eq!(
            (bare.stream.as_ref(), fixed(&bare)),
            ("", "0001-01-01T00:00:00.000000000Z".into())
        );
        for line in [&b"neither\n"[..], b"1", br#"{"time":"today"}"#, b""] {
            assert_eq!(Format::of(line), None);
        }
        assert_eq!(Format::of(b"2016-10-20T18:39:20Z stdout F x"), Some(Format::Cri));
    }
}
