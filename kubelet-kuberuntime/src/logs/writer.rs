//! Converts the lines of the file to the output of the reader.

use k8s_openapi::jiff::Timestamp;

use super::entry::Format;
use super::time::LogTime;
use super::{LogStreams, PodLogOptions};

/// A part of a container's output, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The stream of the output.
    pub stream: LogStream,
    /// One or more lines with their ends, or a part of a line.
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
    /// Whether its output is not wanted.
    hidden: bool,
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

    /// Adds the output of a line of the file. Returns its stream, if it has any. An error is the kubelet's message.
    pub(super) fn line(
        &mut self,
        line: &[u8],
        begins: bool,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<LogStream>, String> {
        if !begins {
            return Ok(self.more(line, ends, out));
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
        let is_old = self.since.is_some_and(|since| entry.time.at() < since);
        let stream = match &*entry.stream {
            "stdout" => LogStream::Stdout,
            "stderr" => LogStream::Stderr,
            // Only the stream of a line that is shown is checked.
            _ if is_old => LogStream::Stdout,
            other => return Err(format!("unexpected stream type {other:?}")),
        };
        let hidden = is_old || !self.wants(stream);
        let time = (self.timestamps && self.new_line).then_some(entry.time);
        let shown = !hidden && self.send(time, &entry.text, out);
        self.new_line = entry.text.last().is_none_or(|byte| *byte == b'\n');
        self.ended(ends);
        self.unended = (!ends).then_some(Unended {
            stream,
            hidden,
            partial: entry.partial,
        });
        Ok(shown.then_some(stream))
    }

    /// A further piece of a line.
    fn more(&mut self, piece: &[u8], ends: bool, out: &mut Vec<u8>) -> Option<LogStream> {
        // The line could not be parsed.
        let unended = self.unended.take()?;
        let text = match piece.strip_suffix(b"\n") {
            Some(text) if unended.partial => text,
            _ => piece,
        };
        let shown = !unended.hidden && self.send(None, text, out);
        self.new_line = text.last().is_some_and(|byte| *byte == b'\n');
        self.ended(ends);
        let stream = unended.stream;
        if !ends {
            self.unended = Some(unended);
        }
        shown.then_some(stream)
    }

    fn wants(&self, stream: LogStream) -> bool {
        match self.wanted {
            LogStreams::All => true,
            LogStreams::Stdout => stream == LogStream::Stdout,
            LogStreams::Stderr => stream == LogStream::Stderr,
        }
    }

    /// Adds a text, with its time, up to the limit. Returns whether anything was added.
    fn send(&mut self, time: Option<LogTime<'_>>, text: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if let Some(time) = time {
            time.write_fixed(out);
            out.push(b' ');
        }
        out.extend_from_slice(text);
        if let Some(remain) = &mut self.remain {
            let most = usize::try_from(*remain).unwrap_or(usize::MAX);
            out.truncate(start.saturating_add(most));
            *remain -= (out.len() - start) as u64;
            self.full = *remain == 0;
        }
        out.len() > start
    }

    fn ended(&mut self, ends: bool) {
        if ends && let Some(lines) = &mut self.lines {
            *lines = lines.saturating_sub(1);
        }
    }
}
