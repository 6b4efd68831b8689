//! A process group and its leader: sends signals, waits for the end, and leaves no process behind.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::proc_fs::{self, Stat};

/// How long to wait for killed processes. Only a process that hangs in the kernel takes longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A process group, identified by its leader.
///
/// The leader is watched through a pidfd and reaped only here. Until it is reaped, no other process can get its pid, so
/// the group's id stays valid and signals are safe. A leader that an earlier agent started is reaped by another
/// process, so there that moment is known only approximately.
pub(super) struct Group {
    leader: Pid,
    pidfd: AsyncFd<OwnedFd>,
    state: Mutex<State>,
}

enum State {
    /// Our own child.
    Child(Child),
    /// Another process's child.
    Adopted,
    /// Reaped.
    Over,
}

impl Group {
    /// The group of a child that was spawned as its leader. A child that cannot be watched is killed.
    pub(super) fn of_child(mut child: Child) -> io::Result<Self> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let watched = pid
            .ok_or_else(|| io::Error::other("the child has no pid"))
            .and_then(|pid| Ok((pid, watch(pid)?)));
        match watched {
            Ok((leader, pidfd)) => Ok(Self {
                leader,
                pidfd,
                state: Mutex::new(State::Child(child)),
            }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error)
            }
        }
    }

    /// The group of a process that an earlier agent started; `None` if that has ended.
    pub(super) fn adopt(pid: Pid, start_time: u64) -> io::Result<Option<Self>> {
        let pidfd = match watch(pid) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // The order matters: the pidfd is opened before the start time is read, so both are of one process.
        let same = Stat::of(pid)?.is_some_and(|stat| stat.start_time == start_time && stat.is_alive());
        Ok(same.then_some(Self {
            leader: pid,
            pidfd,
            state: Mutex::new(State::Adopted),
        }))
    }

    pub(super) fn leader(&self) -> Pid {
        self.leader
    }

    /// Sends a signal to all processes of the group, unless its leader has been reaped.
    pub(super) fn signal(&self, signal: Signal) {
        let state = self.state.lock();
        if !matches!(*state, State::Over) {
            // The only possible error is that no process is left.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Waits for the leader to end. It stays unreaped.
    pub(super) async fn ended(&self) {
        // A pidfd stays readable once it is.
        if let Err(error) = self.pidfd.readable().await {
            tracing::error!(pid = self.leader.as_raw_pid(), %error, "cannot watch a process");
        }
    }

    /// After the leader has ended: kills the other processes, reaps the leader and waits until all are gone. Returns
    /// how the leader ended, which is known only for our own children.
    pub(super) async fn finish(&self) -> Option<ExitStatus> {
        let status = {
            let mut state = self.state.lock();
            let _ = kill_process_group(self.leader, Signal::KILL);
            match std::mem::replace(&mut *state, State::Over) {
                State::Child(mut child) => child.wait().ok(),
                State::Adopted | State::Over => None,
            }
        };
        if tokio::time::timeout(KILL_TIMEOUT, self.emptied()).await.is_err() {
            tracing::warn!(
                group = self.leader.as_raw_pid(),
                "killed processes have not ended yet"
            );
        }
        status
    }

    /// Kills all processes of the group and waits until all are gone.
    pub(super) async fn kill(&self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.ended().await;
        self.finish().await
    }

    /// Kills all processes of the group and reaps its leader, without waiting for the others.
    pub(super) fn kill_blocking(&self) {
        let mut state = self.state.lock();
        if let State::Child(mut child) = std::mem::replace(&mut *state, State::Over) {
            let _ = kill_process_group(self.leader, Signal::KILL);
            let _ = child.wait();
        }
    }

    async fn emptied(&self) {
        while test_kill_process_group(self.leader).is_ok() {
            let mut all = proc_fs::all().into_iter().flatten();
            let group = self.leader.as_raw_pid();
            let Some(member) = all.find(|stat| stat.group == group && stat.is_alive()) else {
                return;
            };
            drop(all);
            if let Some(Ok(pidfd)) = Pid::from_raw(member.pid).map(watch) {
                let _ = pidfd.readable().await;
            }
        }
    }
}

// The call is deprecated for descriptors that may be closed while they are registered, which an `OwnedFd` is not; the
// one that replaces it is unsafe, and there is no unsafe code here.
#[allow(deprecated)]
fn watch(pid: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(pidfd_open(pid, PidfdFlags::NONBLOCK)?, Interest::READABLE)
}

/// The exit code as a shell reports it: 128+n if signal n ended it.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(by_signal)
}
