//! A process group and its leader: signals, its end, and nobody left behind.

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

/// How long killed processes are waited for. Longer takes only one that hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A process group, known by its leader.
///
/// The leader is watched through a pidfd and reaped here alone. As long as it is not reaped its pid, and so the
/// group's id, belongs to nobody else; signals are sent for as long as that is so. For a leader taken over from an
/// earlier agent somebody else does the reaping, and that moment is only nearly known.
pub(super) struct Group {
    leader: Pid,
    pidfd: AsyncFd<OwnedFd>,
    state: Mutex<State>,
}

enum State {
    /// Our own child.
    Child(Child),
    /// Somebody else's.
    Adopted,
    /// Reaped.
    Over,
}

impl Group {
    /// The group of a child that was spawned as its leader. If it cannot be watched it is killed.
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
        // In this order: from here on the pidfd is of the process whose start time is read.
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

    /// Sends a signal to all of the group, unless its leader has been reaped.
    pub(super) fn signal(&self, signal: Signal) {
        let state = self.state.lock();
        if !matches!(*state, State::Over) {
            // The only error there can be is that none is left to get it.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Waits for the leader to end. It stays unreaped.
    pub(super) async fn ended(&self) {
        // A pidfd stays readable once it is.
        if let Err(error) = self.pidfd.readable().await {
            tracing::error!(pid = self.leader.as_raw_pid(), %error, "process cannot be watched");
        }
    }

    /// After the leader has ended: kills the rest, reaps the leader and waits until nobody is left. Returns how the
    /// leader ended, which is known of own children only.
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

    /// Kills all of the group and waits until nobody is left.
    pub(super) async fn kill(&self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.ended().await;
        self.finish().await
    }

    /// Kills all of the group and reaps its leader, for whoever cannot wait for the rest.
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

/// The exit code as a shell tells it: 128+n if signal n ended it.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    let by_signal = || status.signal().map_or(1, |signal| 128 + signal);
    status.code().unwrap_or_else(by_signal)
}
