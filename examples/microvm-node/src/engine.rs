//! An engine: the process of a pod. It outlives the agent, and the next agent finds it by its socket.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::api::Api;

const SOCKET: &str = "api.sock";
/// How long between two looks at an engine that does not answer yet.
const RETRY: Duration = Duration::from_millis(10);
/// How long an engine may take to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A running engine, or one that has ended.
pub(crate) struct Engine {
    pub(crate) api: Api,
    process: AsyncFd<OwnedFd>,
}

impl Engine {
    /// Starts an engine with its socket and its log in this folder. It does not answer yet.
    pub(crate) fn launch(program: &Path, dir: &Path) -> io::Result<Self> {
        let socket = dir.join(SOCKET);
        let log = File::create(dir.join("engine.log"))?;
        // In a process group of its own: a Ctrl-C for the agent is not for the engine. Tokio reaps it when it ends.
        let child = Command::new(program)
            .arg("--api-socket")
            .arg(&socket)
            // When a guest powers off, the engine stays for the pod's next container.
            .arg("--no-shutdown")
            .process_group(0)
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("start {}: {error}", program.display())))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("the engine has no pid"))?;
        Ok(Self { api: Api::new(socket), process: watch(pid)? })
    }

    /// Waits until it answers.
    pub(crate) async fn answers(&self) -> io::Result<()> {
        while let Err(error) = self.api.ping().await {
            if tokio::time::timeout(RETRY, self.ended()).await.is_ok() {
                return Err(io::Error::other(format!("the engine ended: {error}")));
            }
        }
        Ok(())
    }

    /// The engine that an earlier agent started in this folder, if it still runs: it is who listens on the socket.
    pub(crate) async fn adopt(dir: &Path) -> io::Result<Option<Self>> {
        let socket = dir.join(SOCKET);
        let Some(pid) = listener(&socket).await? else { return Ok(None) };
        let process = match watch(pid) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(None);
            }
            process => process?,
        };
        // It still listens, so the pid was not given to another process before it was opened.
        let same = listener(&socket).await? == Some(pid);
        Ok(same.then_some(Self { api: Api::new(socket), process }))
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&self) {
        // It is readable from its end on.
        if let Err(error) = self.process.readable().await {
            tracing::error!(%error, "cannot watch an engine");
        }
    }

    /// Whether the process still runs.
    pub(crate) fn is_running(&self) -> bool {
        // A pidfd is readable once its process has ended, also before it is reaped.
        let (now, mut process) =
            (Timespec { tv_sec: 0, tv_nsec: 0 }, [PollFd::new(&self.process, PollFlags::IN)]);
        poll(&mut process, Some(&now)).is_ok_and(|ended| ended == 0)
    }

    /// Ends it, kills it if it does not answer, and waits until it has ended.
    pub(crate) async fn end(&self) {
        let asked = async {
            if let Err(error) = self.api.act("vmm.shutdown").await {
                tracing::debug!(socket = %self.api.socket().display(), %error, "an engine is killed");
                self.kill();
            }
            self.ended().await;
        };
        if tokio::time::timeout(END_TIMEOUT, asked).await.is_err() {
            self.kill();
            self.ended().await;
        }
    }

    pub(crate) fn kill(&self) {
        // The only possible error is that it has ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// The process that listens on a socket.
async fn listener(socket: &Path) -> io::Result<Option<Pid>> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    match UnixStream::connect(socket).await {
        Ok(stream) => Ok(stream.peer_cred()?.pid().and_then(Pid::from_raw)),
        Err(error) if matches!(error.kind(), ConnectionRefused | NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

// The call is deprecated for descriptors that may be closed while they are registered, which an `OwnedFd` is not; the one that
// replaces it is unsafe.
#[allow(deprecated)]
fn watch(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd_open(pid, PidfdFlags::NONBLOCK)?, Interest::READABLE)
}

/// Removes a folder with all that is in it, if it is there.
pub(crate) fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
