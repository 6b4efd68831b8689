//! A terminal of a command: this side of a pseudo terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};

use kubelet_core::runtime::streaming::TerminalSize;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(super) struct Terminal {
    fd: AsyncFd<OwnedFd>,
}

impl Terminal {
    /// Spawns a command as the leader of a new session with a new controlling terminal, of this size if it is known.
    pub(super) fn spawn(command: Command, size: Option<TerminalSize>) -> io::Result<(Self, Child)> {
        let (pty, pts) = pty_process::blocking::open().map_err(io_error)?;
        let fd = OwnedFd::from(pty);
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        let terminal = Self { fd: watch(fd)? };
        if let Some(size) = size {
            terminal.resize(size);
        }
        let child = pty_process::blocking::Command::from(command).spawn(pts);
        Ok((terminal, child.map_err(io_error)?))
    }

    /// Sets the size. The foreground processes get `SIGWINCH`.
    pub(super) fn resize(&self, size: TerminalSize) {
        let size = Winsize {
            ws_row: size.height,
            ws_col: size.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        if let Err(error) = tcsetwinsize(self.fd.get_ref(), size) {
            tracing::debug!(%error, "cannot resize a terminal");
        }
    }

    /// Reads output; 0 when no process has the terminal any more. May be dropped at any time.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut *buffer)?);
        match self.fd.async_io(Interest::READABLE, read).await {
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(0),
            read => read,
        }
    }

    /// Writes input.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = |fd: &OwnedFd| Ok(rustix::io::write(fd, bytes)?);
            let written = self.fd.async_io(Interest::WRITABLE, write).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

// As for the pidfd of a group: an `OwnedFd` is not closed while it is registered.
#[allow(deprecated)]
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE | Interest::WRITABLE)
}

fn io_error(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        pty_process::Error::Rustix(error) => error.into(),
        other => io::Error::other(other),
    }
}
