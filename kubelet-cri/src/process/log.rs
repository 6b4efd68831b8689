//! Moves the output of containers from their pipes to their logs.

use std::io;
use std::path::{Path, PathBuf};

use kubelet_core::Clock;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::attach::{Clients, Piece};
use crate::verbs::container_log::LineSplitter;
pub(super) use crate::verbs::container_log::open;

/// The most bytes that one read returns.
const READ_BUFFER: usize = 16 * 1024;

/// A request to reopen the file; answered when that is done.
pub(super) type Reopen = oneshot::Sender<io::Result<()>>;

/// Moves what a container writes from its pipes to its log file.
pub(super) struct LogPump {
    /// `None`: the output is read and discarded.
    path: Option<PathBuf>,
    file: Option<File>,
    stdout: Stream,
    stderr: Stream,
    reopen: mpsc::Receiver<Reopen>,
    /// Attached clients, which get the output as it is.
    clients: Clients,
    clock: Clock,
    failed: bool,
}

struct Stream {
    pipe: Option<Receiver>,
    buffer: Vec<u8>,
    lines: LineSplitter,
}

impl LogPump {
    /// A pump to the file at `path`. A pipe that is `None` is at its end.
    pub(super) fn new(
        path: Option<PathBuf>,
        file: Option<std::fs::File>,
        stdout: Option<Receiver>,
        stderr: Option<Receiver>,
        reopen: mpsc::Receiver<Reopen>,
        clients: Clients,
        clock: Clock,
    ) -> Self {
        let stream = |pipe, name| Stream {
            pipe,
            buffer: vec![0; READ_BUFFER],
            lines: LineSplitter::new(name),
        };
        Self {
            path,
            file: file.map(File::from_std),
            stdout: stream(stdout, "stdout"),
            stderr: stream(stderr, "stderr"),
            reopen,
            clients,
            clock,
            failed: false,
        }
    }

    /// Runs until both pipes are at their end, or until `give_up`. After that it accepts no requests.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses the output that was read and not yet written.
    pub(super) async fn run(mut self, give_up: &CancellationToken) {
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            let mut out = Vec::new();
            tokio::select! {
                () = give_up.cancelled() => break,
                Some(done) = self.reopen.recv() => {
                    let reopened = self.reopen_file().await;
                    let _ = done.send(reopened);
                }
                read = self.stdout.read(), if self.stdout.pipe.is_some() => {
                    self.stdout.show(&read, &self.clients, false);
                    self.stdout.split(read, &self.clock, &mut out);
                }
                read = self.stderr.read(), if self.stderr.pipe.is_some() => {
                    self.stderr.show(&read, &self.clients, true);
                    self.stderr.split(read, &self.clock, &mut out);
                }
            }
            self.write(&out).await;
        }
        let mut out = Vec::new();
        for stream in [&mut self.stdout, &mut self.stderr] {
            stream.lines.end(&self.clock.now().to_string(), &mut out);
        }
        self.write(&out).await;
        self.reopen.close();
        while let Ok(done) = self.reopen.try_recv() {
            let reopened = self.reopen_file().await;
            let _ = done.send(reopened);
        }
    }

    /// If the file cannot be written, it still reads, because otherwise the container would block on its output.
    async fn write(&mut self, bytes: &[u8]) {
        let Some(file) = self.file.as_mut().filter(|_| !bytes.is_empty()) else {
            return;
        };
        let written = match file.write_all(bytes).await {
            Ok(()) => file.flush().await,
            error => error,
        };
        if let Err(error) = &written
            && !self.failed
        {
            let path = self.path.as_deref().unwrap_or(Path::new(""));
            tracing::warn!(path = %path.display(), %error, "cannot write a container log, output is lost");
        }
        self.failed = written.is_err();
    }

    async fn reopen_file(&mut self) -> io::Result<()> {
        if let Some(path) = self.path.clone() {
            let opened = tokio::task::spawn_blocking(move || open(&path)).await;
            self.file = Some(File::from_std(opened.map_err(io::Error::other)??));
        }
        Ok(())
    }
}

impl Stream {
    /// Reads the available bytes; 0 at the end.
    async fn read(&mut self) -> io::Result<usize> {
        match &mut self.pipe {
            Some(pipe) => pipe.read(&mut self.buffer).await,
            None => Ok(0),
        }
    }

    /// Sends what was read to the attached clients. It does not wait for them.
    fn show(&self, read: &io::Result<usize>, clients: &Clients, is_stderr: bool) {
        if let Ok(n @ 1..) = read
            && clients.receiver_count() > 0
        {
            let bytes = self.buffer[..*n].into();
            let _ = clients.send(Piece { is_stderr, bytes });
        }
    }

    fn split(&mut self, read: io::Result<usize>, clock: &Clock, out: &mut Vec<u8>) {
        let time = clock.now().to_string();
        match read {
            Ok(0) | Err(_) => {
                self.pipe = None;
                self.lines.end(&time, out);
                self.buffer = Vec::new();
            }
            Ok(n) => self.lines.feed(&self.buffer[..n], &time, out),
        }
    }
}
