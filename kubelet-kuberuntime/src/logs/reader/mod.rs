//! Reads and follows a log.

mod batch;
mod follow;
mod next_file;
mod segment;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use kubelet_core::{Clock, Disk};
use tokio::time::Instant;

use self::batch::Batch;
use self::follow::{Follow, Next};
use self::next_file::Place;
use self::segment::{FileId, Open, Segment, Source};
use super::PodLogOptions;
use super::changes::LogWatcher;
use super::lines::{LineBuffer, Piece};
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
/// It reads only when the stream is polled, and only as much as needed. It holds at most about 650 KiB, for lines of
/// any length, usually 100 KiB, and none while it waits for more. A line that cannot be parsed is logged and skipped.
///
/// While it follows, it wakes with each change of the folder (inotify), up to 10 times a second, and every second. After a rotation it continues
/// in the new file. It loses output only if it is so slow that a file is removed before it was read.
#[derive(Clone)]
#[must_use]
pub struct LogReader {
    path: PathBuf,
    options: PodLogOptions,
    container: Option<(Arc<dyn RuntimeService>, String)>,
    seen_running: Option<Instant>,
    clock: Clock,
    disk: Disk,
    watcher: LogWatcher,
}

impl LogReader {
    /// A reader of the whole file; set [`options`](Self::options) to read a part.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            options: PodLogOptions::default(),
            container: None,
            seen_running: None,
            clock: Clock::system(),
            disk: Disk::default(),
            watcher: LogWatcher::default(),
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

    /// The runtime has just reported that the container runs: a follower need not ask again at once.
    pub(crate) fn seen_running(mut self, is_running: bool) -> Self {
        self.seen_running = is_running.then(Instant::now);
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

    /// What watches the folder while it follows; a watcher of its own by default. Share one among all readers of a
    /// process.
    pub fn watcher(mut self, watcher: LogWatcher) -> Self {
        self.watcher = watcher;
        self
    }

    /// Reads the log. A chunk has as many lines of one stream as there are, up to 14 KiB, or one longer line. A
    /// follower gets new lines at once, or 100 ms after the last ones.
    ///
    /// # Errors
    ///
    /// [`Error::Log`] with the kubelet's message, if the file does not exist, has an unknown format, or cannot be read.
    /// The runtime's errors, if the state of the container cannot be read. While the runtime is away, the container
    /// counts as running.
    pub fn read(self) -> LogChunks {
        self.read_batches(Batch::of_one_stream())
    }

    /// Reads the log without the names of the streams. Then lines of both streams are in one piece.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_text(self) -> BoxStream<'static, Result<Vec<u8>, Error>> {
        let chunks = self.read_batches(Batch::of_all_streams());
        chunks.map_ok(|chunk| chunk.bytes).boxed()
    }

    fn read_batches(self, batch: Batch) -> LogChunks {
        let start = State::Unopened(Box::new((self, batch)));
        let chunks = stream::try_unfold(start, |mut state| async move {
            loop {
                state = match state {
                    State::Unopened(unopened) => {
                        let (reader, batch) = *unopened;
                        State::Reading(Box::new(Reading::open(reader, batch).await?))
                    }
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
    Unopened(Box<(LogReader, Batch)>),
    Reading(Box<Reading>),
}

/// The state of reading a log.
struct Reading {
    /// The path of the log, without links.
    path: PathBuf,
    disk: Disk,
    /// The open file.
    open: Open,
    /// Rotated files after it that are known already, oldest first.
    ahead: VecDeque<Segment>,
    lines: LineBuffer,
    /// A line that is written next.
    held: Option<Piece>,
    writer: Writer,
    batch: Batch,
    follow: Option<Follow>,
    /// Whether the last read found the end of the file.
    at_eof: bool,
    ended: bool,
    /// Returned next.
    failed: Option<Error>,
}

/// What to do next.
enum Step {
    /// Read more.
    Read,
    /// Return the chunk.
    Return,
    /// Return the chunk, and end.
    End,
}

impl Reading {
    async fn open(reader: LogReader, batch: Batch) -> Result<Self, Error> {
        let LogReader {
            path,
            options,
            container,
            seen_running,
            clock,
            disk,
            watcher,
        } = reader;
        let writer = Writer::new(&options, clock.now());
        let (tail, rotated) = (options.tail_lines, options.rotated);
        let given = path.clone();
        // One piece of file work finds and opens the file and finds the tail.
        let opened = disk.run(move || Ok(find(&path, tail, rotated))).await;
        let (path, ahead, open) = opened
            .unwrap_or_else(|error| Err(format!("failed to open log file {given:?}: {}", go_text(&error))))
            .map_err(|message| log_error(&given, message))?;
        let follow = options
            .follow
            .then(|| Follow::new(container, seen_running, watcher));
        Ok(Self {
            path,
            disk,
            open,
            ahead,
            lines: LineBuffer::default(),
            held: None,
            writer,
            batch,
            follow,
            at_eof: false,
            ended: false,
            failed: None,
        })
    }

    async fn next(&mut self) -> Result<Option<LogChunk>, Error> {
        loop {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            let stepped = match self.write_lines() {
                Ok(Step::Read) => self.read_more().await,
                stepped => stepped,
            };
            match stepped {
                Ok(Step::Read) => {}
                Ok(Step::End) => return Ok(self.batch.take()),
                Ok(Step::Return) => return Ok(self.batch.take()),
                Err(error) => match self.batch.take() {
                    // Return this first.
                    Some(chunk) => {
                        self.failed = Some(error);
                        return Ok(Some(chunk));
                    }
                    None => return Err(error),
                },
            }
        }
    }

    /// Adds what was read to the output, as much as goes into one chunk.
    fn write_lines(&mut self) -> Result<Step, Error> {
        self.batch.reserve(self.lines.len());
        loop {
            if self.writer.is_full() {
                return Ok(Step::End);
            }
            let Some(piece) = self.held.take().or_else(|| self.lines.next()) else {
                return Ok(if self.ended { Step::End } else { Step::Read });
            };
            let text = self.lines.text(&piece);
            if !self.batch.has_room(text.len()) {
                self.held = Some(piece);
                return Ok(Step::Return);
            }
            let written = self
                .batch
                .write(|out| self.writer.line(text, piece.begins, piece.ends, out));
            if written.map_err(|message| log_error(&self.path, message))? {
                return Ok(Step::Return);
            }
        }
    }

    /// All that was read is in the output: reads more, or finds out whether there is more.
    async fn read_more(&mut self) -> Result<Step, Error> {
        if !self.at_eof {
            self.at_eof = self.fill().await?;
            return Ok(Step::Read);
        }
        if self.follow.is_some() && !self.batch.is_empty() {
            return Ok(Step::Return);
        }
        self.at_eof = false;
        self.held = self.at_end().await?;
        Ok(Step::Read)
    }

    /// Reads more, and returns whether the file has ended.
    async fn fill(&mut self) -> Result<bool, Error> {
        let is_waiting = self.follow.as_ref().is_some_and(Follow::is_watching);
        if let Some(Source::Plain(file)) = &self.open.source
            && let Ok(ended) = self.lines.read_ready(file, is_waiting)
        {
            if !ended {
                // A long log is in memory, and perhaps no line of it is wanted: other tasks run in between.
                tokio::task::yield_now().await;
            }
            return Ok(ended);
        }
        let mut lines = std::mem::take(&mut self.lines);
        let mut source = self.open.source.take();
        let read = self.disk.run(move || {
            let read = match &mut source {
                Some(source) => lines.read_from(source),
                None => Ok(true),
            };
            Ok((read, source, lines))
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
        let (read, source, lines) = read.await.map_err(|error| failed(&self.path, error))?;
        self.open.source = source;
        self.lines = lines;
        read.map_err(|error| failed(&self.path, error))
    }

    /// All content of the file was returned: continues with the next file, waits, or ends. The rest of a line without
    /// an end is returned when nothing can follow it.
    async fn at_end(&mut self) -> Result<Option<Piece>, Error> {
        if let Some(next) = self.ahead.pop_front() {
            if let rest @ Some(_) = self.lines.rest() {
                self.ahead.push_front(next);
                return Ok(rest);
            }
            match self.disk.run(move || next.open()).await {
                Ok(open) => self.open = open,
                // It was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(self.cannot_open(&error)),
            }
            return Ok(None);
        }
        let Some(follow) = &mut self.follow else {
            let next = match self.open.id {
                Some(_) => None,
                None => {
                    let (path, place) = (self.path.clone(), Place::of(&self.open));
                    let next = self.disk.run(move || place.open_next(&path)).await;
                    next.map_err(|error| self.cannot_open(&error))?
                }
            };
            let rest = self.lines.rest();
            match next {
                // Then it is opened again.
                Some(_) if rest.is_some() => {}
                Some(next) => self.open = next,
                None => self.ended = true,
            }
            return Ok(rest);
        };
        // A follower may wait for long.
        self.lines.release();
        self.batch.release();
        match follow.next(&self.path, &self.open, self.disk).await? {
            Next::Look => {}
            Next::File(open) => {
                self.open = *open;
                return Ok(self.lines.rest());
            }
            Next::End => self.ended = true,
        }
        Ok(None)
    }

    fn cannot_open(&self, error: &io::Error) -> Error {
        let message = format!("failed to open log file {:?}: {}", self.path, go_text(error));
        log_error(&self.path, message)
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
    let find_segments = || {
        plan(&resolved, tail, rotated).map_err(|error| {
            let lines = tail.unwrap_or_default();
            format!(
                "failed to tail {lines} lines of log file {resolved:?}: {}",
                go_text(&error)
            )
        })
    };
    let mut segments = find_segments()?;
    loop {
        let Some(first) = segments.pop_front() else {
            return Err(format!(
                "failed to open log file {resolved:?}: no such file or directory"
            ));
        };
        match first.open() {
            // The log was rotated after its tail was found.
            Ok(open) if first.start > 0 && first.id.is_some() && first.id != open.id => {
                segments = find_segments()?;
            }
            Ok(open) => {
                // The current file is found again when the others were read: by then it may be another one.
                segments.retain(|segment| !segment.is_current);
                return Ok((resolved, segments, open));
            }
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
                let mut file = File::open(&segment.path)?;
                let (start, found) = tail_start(&mut file, lines)?;
                segment.start = start;
                if segment.is_current {
                    segment.id = Some(FileId::of(&file.metadata()?));
                }
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
