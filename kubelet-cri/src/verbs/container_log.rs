//! Container logs in CRI's format: `<RFC 3339 time> <stdout|stderr> <F|P> <line>`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use kubelet_core::Clock;

/// Longer lines are split. containerd's `max_container_log_line_size`.
const MAX_LINE: usize = 16 * 1024;

/// The log file of a container, in the format that `kubectl logs` reads: `<time> <stdout|stderr> <F|P> <line>`.
///
/// A runtime writes to it what the container writes, in pieces of any size, and [reopens](Self::reopen) it in
/// [`Logs::reopen`](super::Logs::reopen). All calls block while they write to the file.
///
/// ```
/// use kubelet_core::Clock;
/// use kubelet_cri::verbs::{ContainerLog, LogStream};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("main/0.log");
/// let mut log = ContainerLog::open(&path, Clock::system())?;
/// log.write(LogStream::Stdout, b"hello\nwor")?;
/// log.write(LogStream::Stdout, b"ld\n")?;
/// log.end()?;
/// let written = std::fs::read_to_string(&path)?;
/// assert!(written.ends_with(" stdout F world\n"));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct ContainerLog {
    path: PathBuf,
    file: File,
    stdout: LineSplitter,
    stderr: LineSplitter,
    clock: Clock,
}

/// The stream of a line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
}

impl ContainerLog {
    /// Opens a log file to append to it; creates it and its folder if needed. The clock gives the times of the lines.
    ///
    /// # Errors
    ///
    /// If the file or its folder cannot be created or opened.
    pub fn open(path: impl Into<PathBuf>, clock: Clock) -> io::Result<Self> {
        let path = path.into();
        Ok(Self {
            file: open(&path)?,
            path,
            stdout: LineSplitter::new("stdout"),
            stderr: LineSplitter::new("stderr"),
            clock,
        })
    }

    /// Writes what the container wrote. A line is in the file when its end was written; a line longer than 16 KiB, in parts.
    ///
    /// # Errors
    ///
    /// If the file cannot be written. These bytes are lost then, and the log can be used further.
    pub fn write(&mut self, stream: LogStream, bytes: &[u8]) -> io::Result<()> {
        let (time, mut lines) = (self.clock.now().to_string(), Vec::new());
        let splitter = match stream {
            LogStream::Stdout => &mut self.stdout,
            LogStream::Stderr => &mut self.stderr,
        };
        splitter.feed(bytes, &time, &mut lines);
        self.file.write_all(&lines)
    }

    /// Opens the file at its path again, after a rotation has renamed it. All further lines go there.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened. The log then goes on in the earlier file.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Writes last lines that have no end. Call it when the container has ended.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn end(&mut self) -> io::Result<()> {
        let (time, mut lines) = (self.clock.now().to_string(), Vec::new());
        self.stdout.end(&time, &mut lines);
        self.stderr.end(&time, &mut lines);
        self.file.write_all(&lines)
    }
}

/// Opens a log file to append to it; creates it and its folder if needed.
pub(crate) fn open(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

/// Splits a stream of bytes into CRI's lines, as containerd does. The line end is removed, with a carriage return
/// before it. A line longer than [`MAX_LINE`] is split into parts tagged `P`, the last part tagged `F`. A last line
/// without an end is tagged `P`.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    name: &'static str,
    /// The bytes since the last line end.
    rest: Vec<u8>,
}

impl LineSplitter {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            rest: Vec::new(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], time: &str, out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            self.rest.extend_from_slice(text);
            let carriage_return = self.rest.last() == Some(&b'\r');
            if ended && carriage_return {
                self.rest.pop();
            }
            // Whether a carriage return is part of the line end depends on the next byte.
            let undecided = usize::from(!ended && carriage_return);
            let mut rest = &self.rest[..];
            while rest.len() > MAX_LINE + undecided {
                let (part, more) = rest.split_at(MAX_LINE);
                line(self.name, "P", part, time, out);
                rest = more;
            }
            if ended {
                line(self.name, "F", rest, time, out);
                self.rest.clear();
            } else {
                self.rest.drain(..self.rest.len() - rest.len());
            }
        }
    }

    pub(crate) fn end(&mut self, time: &str, out: &mut Vec<u8>) {
        if !self.rest.is_empty() {
            line(self.name, "P", &self.rest, time, out);
            self.rest.clear();
        }
    }
}

fn line(name: &str, tag: &str, text: &[u8], time: &str, out: &mut Vec<u8>) {
    for part in [time, " ", name, " ", tag, " "] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> String {
        let (mut lines, mut out) = (LineSplitter::new("stdout"), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, "T", &mut out);
        }
        lines.end("T", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_cut_as_containerd_does() {
        let full = "x".repeat(MAX_LINE);
        for (chunks, expected) in [
            (vec![""], String::new()),
            (vec!["a\nb\n"], "T stdout F a\nT stdout F b\n".into()),
            (vec!["\n\n"], "T stdout F \nT stdout F \n".into()),
            (vec!["a", "b", "\nc"], "T stdout F ab\nT stdout P c\n".into()),
            (
                vec!["a\r\nb\r", "\nc\rd\n"],
                "T stdout F a\nT stdout F b\nT stdout F c\rd\n".into(),
            ),
            (vec![&*full, "\n"], format!("T stdout F {full}\n")),
            (vec![&*full, "\r", "\n"], format!("T stdout F {full}\n")),
            (
                vec![&*full, "\r", "y\n"],
                format!("T stdout P {full}\nT stdout F \ry\n"),
            ),
            (vec![&*full, "y\n"], format!("T stdout P {full}\nT stdout F y\n")),
            (
                vec![&*full, &*full, "y"],
                format!("T stdout P {full}\nT stdout P {full}\nT stdout P y\n"),
            ),
        ] {
            let bytes: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.as_bytes()).collect();
            assert!(
                split(&bytes) == expected,
                "{} chunks, {} bytes",
                chunks.len(),
                expected.len()
            );
        }
    }

    #[test]
    fn a_log_goes_on_in_a_new_file_after_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("main/0.log"), folder.path().join("rotated"));
        let texts = |path: &Path| {
            let lines = std::fs::read_to_string(path).unwrap();
            let text = |line: &str| line.split_once(' ').unwrap().1.to_owned();
            lines.lines().map(text).collect::<Vec<_>>()
        };
        let mut log = ContainerLog::open(&path, Clock::system()).unwrap();
        log.write(LogStream::Stdout, b"one\ntw").unwrap();
        std::fs::rename(&path, &rotated).unwrap();
        log.write(LogStream::Stderr, b"three\n").unwrap();
        log.reopen().unwrap();
        log.write(LogStream::Stdout, b"o\nfour").unwrap();
        log.end().unwrap();
        assert_eq!(texts(&rotated), ["stdout F one", "stderr F three"]);
        assert_eq!(texts(&path), ["stdout F two", "stdout P four"]);
    }
}
