//! Reads and follows a log.

mod follow;
mod segment;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use kubelet_core::{Clock, Disk};

use self::follow::{Follow, Next};
use self::segment::{Open, Segment};
use super::PodLogOptions;
use super::lines::LineBuffer;
use super::tail::{count_lines, tail_start};
use super::writer::{LogChunk, Writer};
use super::{files, go_text};
use crate::Error;
use kubelet_cri::RuntimeService;

/// The content of a log, in order. It ends at the end of the log, after an error, or when the options are satisfied.
/// Dropping it ends the reading.
pub type LogChunks = BoxStream<'static, Result<LogChunk, Error>>;

/// Reads the log of a container: a file in CRI's format or in Docker's (`ReadLogs`).
///
/// It reads only when the stream is polled, and only as much as needed. It holds at most about 300 KiB, for lines of
/// any length. A line that cannot be parsed is logged and skipped.
///
/// While it follows, it wakes with each change of the folder (inotify), and every second. After a rotation it continues
/// in the new file. It loses output only if it is so slow that a file is removed before it was read.
#[derive(Clone)]
#[must_use]
pub struct LogReader {
    path: PathBuf,
    options: PodLogOptions,
    container: Option<(Arc<dyn RuntimeService>, String)>,
    clock: Clock,
    disk: Disk,
}

impl LogReader {
    /// A reader of the whole file; set [`options`](Self::options) to read a part.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            options: PodLogOptions::default(),
            container: None,
            clock: Clock::system(),
            disk: Disk::default(),
        }
    }

    /// Sets the options of the request.
    pub fn options(mut self, options: PodLogOptions) -> Self {
        self.options = options;
        self
    }

    /// The container of the log, by its id in the runtime: following ends when it is not running any more. Without a
    /// container, following ends when the stream is dropped.
    pub fn container(mut self, runtime: Arc<dyn RuntimeService>, id: impl Into<String>) -> Self {
        self.container = Some((runtime, id.into()));
        self
    }

    /// The wall clock for [`since_seconds`](PodLogOptions::since_seconds).
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How file work is done, on another thread by default.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Reads the log.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] with the kubelet's message, if the file does not exist, has an unknown format, or cannot be read.
    /// The runtime's errors, if the state of the container cannot be read. While the runtime is away, the container
    /// counts as running.
    pub fn read(self) -> LogChunks {
        let start = State::Unopened(Box::new(self));
        let chunks = stream::try_unfold(start, |mut state| async move {
            loop {
                state = match state {
                    State::Unopened(reader) => State::Reading(Box::new(Reading::open(*reader).await?)),
                    State::Reading(mut reading) => {
                        let chunk = reading.next().await?;
                        return Ok(chunk.map(|chunk| (chunk, State::Reading(reading))));
                    }
                }
            }
        });
        chunks.boxed()
    }
}

enum State {
    Unopened(Box<LogReader>),
    Reading(Box<Reading>),
}

/// The state of reading a log.
struct Reading {
    /// The path of the log, without links.
    path: PathBuf,
    disk: Disk,
    /// The open file.
    open: Open,
    /// The files after it, oldest first.
    ahead: VecDeque<Segment>,
    lines: LineBuffer,
    writer: Writer,
    follow: Option<Follow>,
    ended: bool,
}

impl Reading {
    async fn open(reader: LogReader) -> Result<Self, Error> {
        let LogReader {
            path,
            options,
            container,
            clock,
            disk,
        } = reader;
        let writer = Writer::new(&options, clock.now());
        let (tail, rotated) = (options.tail_lines, options.rotated);
        let given = path.clone();
        // One piece of file work finds and opens the file and finds the tail.
        let opened = disk.run(move || Ok(find(&path, tail, rotated))).await;
        let (path, ahead, open) = opened
            .unwrap_or_else(|error| Err(format!("failed to open log file {given:?}: {}", go_text(&error))))
            .map_err(|message| log_error(&given, message))?;
        let follow = options.follow.then(|| Follow::new(container));
        Ok(Self {
            path,
            disk,
            open,
            ahead,
            lines: LineBuffer::default(),
            writer,
            follow,
            ended: false,
        })
    }

    async fn next(&mut self) -> Result<Option<LogChunk>, Error> {
        loop {
            if self.ended || self.writer.is_full() {
                return Ok(None);
            }
            let piece = match self.lines.next() {
                Some(piece) => Some(piece),
                None if self.fill().await? > 0 => continue,
                None => self.at_end().await?,
            };
            let Some(piece) = piece else { continue };
            let written = self
                .writer
                .line(self.lines.text(&piece), piece.begins, piece.ends);
            if let Some(chunk) = written.map_err(|message| log_error(&self.path, message))? {
                return Ok(Some(chunk));
            }
        }
    }

    /// Reads more, and returns how many bytes.
    async fn fill(&mut self) -> Result<usize, Error> {
        let mut buffer = std::mem::take(self.lines.room());
        let mut source = self.open.source.take();
        let read = self.disk.run(move || {
            let read = match &mut source {
                Some(source) => segment::read_on(source, &mut buffer),
                None => Ok(0),
            };
            Ok((read, source, buffer))
        });
        let failed = |path: &Path, error| {
            log_error(
                path,
                format!(
                    "failed to read log file {path:?}: read {}: {}",
                    path.display(),
                    go_text(&error)
                ),
            )
        };
        let (read, source, buffer) = read.await.map_err(|error| failed(&self.path, error))?;
        self.open.source = source;
        *self.lines.room() = buffer;
        read.map_err(|error| failed(&self.path, error))
    }

    /// All content of the file was returned: continues with the next file, waits, or ends. The rest of a line without
    /// an end is returned when nothing can follow it.
    async fn at_end(&mut self) -> Result<Option<super::lines::Piece>, Error> {
        if let Some(next) = self.ahead.pop_front() {
            let rest = self.lines.rest();
            if rest.is_some() {
                // Return this first.
                self.ahead.push_front(next);
                return Ok(rest);
            }
            let opened = self.disk.run(move || next.open()).await;
            match opened {
                Ok(open) => self.open = open,
                // It was removed meanwhile, or is about to be created.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let message = format!("failed to open log file {:?}: {}", self.path, go_text(&error));
                    return Err(log_error(&self.path, message));
                }
            }
            return Ok(None);
        }
        let Some(follow) = &mut self.follow else {
            self.ended = true;
            return Ok(self.lines.rest());
        };
        match follow.next(&self.path, &self.open, self.disk).await? {
            Next::Look => {}
            Next::Segments(segments) => self.ahead = segments,
            Next::End => self.ended = true,
        }
        Ok(None)
    }
}

/// Finds the files, and opens the first one to read.
fn find(path: &Path, tail: Option<i64>, rotated: bool) -> Result<(PathBuf, VecDeque<Segment>, Open), String> {
    let resolved = path.canonicalize().map_err(|error| {
        let missing = first_missing(path);
        format!(
            "failed to try resolving symlinks in path {path:?}: lstat {}: {}",
            missing.display(),
            go_text(&error)
        )
    })?;
    let tail = tail.and_then(|lines| u64::try_from(lines).ok());
    let segments = plan(&resolved, tail, rotated);
    let mut segments = segments.map_err(|error| {
        let lines = tail.unwrap_or_default();
        format!(
            "failed to tail {lines} lines of log file {resolved:?}: {}",
            go_text(&error)
        )
    })?;
    loop {
        let Some(first) = segments.pop_front() else {
            return Err(format!(
                "failed to open log file {resolved:?}: no such file or directory"
            ));
        };
        match first.open() {
            Ok(open) => return Ok((resolved, segments, open)),
            Err(error) if error.kind() == ErrorKind::NotFound && !segments.is_empty() => {}
            Err(error) => {
                return Err(format!(
                    "failed to open log file {resolved:?}: open {}: {}",
                    resolved.display(),
                    go_text(&error)
                ));
            }
        }
    }
}

/// The files to read, and the offset in the first.
fn plan(log: &Path, tail: Option<u64>, rotated: bool) -> io::Result<VecDeque<Segment>> {
    let mut segments = VecDeque::new();
    let mut wanted = tail;
    let older = match rotated {
        true => files::RotatedFiles::of(log)?.in_use,
        false => Vec::new(),
    };
    let current = Segment::current(log);
    for mut segment in std::iter::once(current).chain(older.into_iter().rev().map(Segment::rotated)) {
        let Some(lines) = wanted else {
            segments.push_front(segment);
            continue;
        };
        if lines == 0 && !segments.is_empty() {
            break;
        }
        let found = match segment.is_compressed() {
            true => {
                let Some(mut source) = segment.open()?.source else {
                    continue;
                };
                let all = count_lines(&mut source)?;
                segment.skip_lines = all.saturating_sub(lines);
                all.min(lines)
            }
            false => {
                let (start, found) = tail_start(&mut std::fs::File::open(&segment.path)?, lines)?;
                segment.start = start;
                found
            }
        };
        wanted = Some(lines - found);
        segments.push_front(segment);
    }
    Ok(segments)
}

/// The path in Go's error: the first part that does not exist.
fn first_missing(path: &Path) -> &Path {
    let mut parents: Vec<&Path> = path.ancestors().collect();
    parents.reverse();
    parents
        .into_iter()
        .find(|parent| parent.symlink_metadata().is_err())
        .unwrap_or(path)
}

fn log_error(path: &Path, message: String) -> Error {
    Error::Log {
        path: path.display().to_string(),
        message,
    }
}
