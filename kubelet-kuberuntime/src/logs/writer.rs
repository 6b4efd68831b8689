//! Converts the lines of the file to the output of the reader.

use k8s_openapi::jiff::Timestamp;

use super::entry::{Entry, Format};
use super::{LogStreams, PodLogOptions};

/// A part of a container's output, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The stream of the output.
    pub stream: LogStream,
    /// A line with its end, or a part of a line.
    pub bytes: Vec<u8>,
}

/// A stream of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogStream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// Filters and truncates the output, and adds times (`logWriter`, and the part of `ReadLogs` that calls it).
pub(super) struct Writer {
    since: Option<Timestamp>,
    timestamps: bool,
    wanted: LogStreams,
    /// How many bytes may still be written.
    remain: Option<u64>,
    /// How many lines may still be written.
    lines: Option<u64>,
    /// The format, known after the first line.
    format: Option<Format>,
    /// Whether the next text begins a line of the container.
    new_line: bool,
    /// The first piece of a line that comes in pieces.
    unended: Option<Unended>,
    full: bool,
}

struct Unended {
    stream: LogStream,
    time: Timestamp,
    partial: bool,
}

impl Writer {
    pub(super) fn new(options: &PodLogOptions, now: Timestamp) -> Self {
        let at_least_0 = |number: Option<i64>| number.map(|number| u64::try_from(number).unwrap_or(0));
        Self {
            since: options.since(now),
            timestamps: options.timestamps,
            wanted: options.stream,
            remain: at_least_0(options.limit_bytes),
            lines: at_least_0(options.tail_lines).filter(|_| !options.follow),
            format: None,
            new_line: true,
            unended: None,
            full: false,
        }
    }

    /// Whether a limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.full || self.lines == Some(0)
    }

    /// The output of a line of the file. An error is the kubelet's message.
    pub(super) fn line(&mut self, line: &[u8], begins: bool, ends: bool) -> Result<Option<LogChunk>, String> {
        if !begins {
            return Ok(self.more(line, ends));
        }
        let format = match self.format {
            Some(format) => format,
            None => Format::of(line).ok_or_else(|| {
                let shown = &line[..line.len().min(1024)];
                format!(
                    "failed to get parse function: unsupported log format: {:?}",
                    String::from_utf8_lossy(shown)
                )
            })?,
        };
        self.format = Some(format);
        let entry = match format.parse(line) {
            Ok(entry) => entry,
            Err(error) => {
                let line = String::from_utf8_lossy(&line[..line.len().min(256)]);
                tracing::warn!(error, %line, "skipping a log line that cannot be parsed");
                return Ok(None);
            }
        };
        let new_line = self.new_line;
        let chunk = self.write(&entry, new_line)?;
        self.new_line = entry.text.last().is_none_or(|byte| *byte == b'\n');
        self.ended(ends);
        self.unended = (!ends).then(|| Unended {
            stream: if entry.stream == "stderr" {
                LogStream::Stderr
            } else {
                LogStream::Stdout
            },
            time: entry.time.at,
            partial: entry.partial,
        });
        Ok(chunk)
    }

    /// A further piece of a line.
    fn more(&mut self, piece: &[u8], ends: bool) -> Option<LogChunk> {
        // The line could not be parsed.
        let unended = self.unended.take()?;
        let text = match piece.strip_suffix(b"\n") {
            Some(text) if unended.partial => text,
            _ => piece,
        };
        let chunk = self.send(unended.stream, unended.time, text.to_vec());
        self.new_line = text.last().is_some_and(|byte| *byte == b'\n');
        self.ended(ends);
        if !ends {
            self.unended = Some(unended);
        }
        chunk
    }

    fn write(&mut self, entry: &Entry<'_>, new_line: bool) -> Result<Option<LogChunk>, String> {
        if self.since.is_some_and(|since| entry.time.at < since) {
            return Ok(None);
        }
        let stream = match entry.stream.as_str() {
            "stdout" => LogStream::Stdout,
            "stderr" => LogStream::Stderr,
            other => return Err(format!("unexpected stream type {other:?}")),
        };
        let mut bytes = Vec::with_capacity(entry.text.len() + 40);
        if self.timestamps && new_line {
            bytes.extend_from_slice(entry.time.fixed().as_bytes());
            bytes.push(b' ');
        }
        bytes.extend_from_slice(&entry.text);
        Ok(self.send(stream, entry.time.at, bytes))
    }

    fn send(&mut self, stream: LogStream, time: Timestamp, mut bytes: Vec<u8>) -> Option<LogChunk> {
        let wanted = match self.wanted {
            LogStreams::All => true,
            LogStreams::Stdout => stream == LogStream::Stdout,
            LogStreams::Stderr => stream == LogStream::Stderr,
        };
        if !wanted || self.since.is_some_and(|since| time < since) {
            return None;
        }
        if let Some(remain) = &mut self.remain {
            bytes.truncate(usize::try_from(*remain).unwrap_or(usize::MAX));
            *remain -= bytes.len() as u64;
            self.full = *remain == 0;
        }
        (!bytes.is_empty()).then_some(LogChunk { stream, bytes })
    }

    fn ended(&mut self, ends: bool) {
        if ends && let Some(lines) = &mut self.lines {
            *lines = lines.saturating_sub(1);
        }
    }
}
