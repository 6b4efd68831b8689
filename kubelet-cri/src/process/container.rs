//! A container that was started: its state, and the task that supervises it until it ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::attach::{self, Clients, Input, InputKind, Piece};
use super::command::Environment;
use super::group::{Group, exit_code};
use super::log::{self, LogPump, Reopen};
use super::record::Record;
use crate::verbs::{Container, ContainerKey, ContainerState, Exit, PodKey, Result, RuntimeError};

/// The kubelet's exit code and reason for a container whose real exit code is unknown.
const UNKNOWN_EXIT_CODE: i32 = 137;
const UNKNOWN_REASON: &str = "ContainerStatusUnknown";
/// How long to wait for output after the last process of the group has ended. Only a process that left the group can
/// still hold the pipe open.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The named pipe of the standard input, in a container's folder.
pub(super) const INPUT: &str = "stdin";

/// A container that was started.
pub(super) struct Process {
    key: ContainerKey,
    dir: PathBuf,
    env: Environment,
    stop_signal: Signal,
    record: Mutex<Record>,
    /// Dropped once it has ended.
    group: Mutex<Option<Arc<Group>>>,
    stop_signal_sent: AtomicBool,
    state: watch::Sender<ContainerState>,
    reopen: mpsc::Sender<Reopen>,
    /// Dropped once it has ended and all its output was read.
    clients: Mutex<Option<Clients>>,
    input: Input,
    /// The highest CPU time that was measured so far, in clock ticks.
    cpu_time: AtomicU64,
}

/// What the supervision of a process needs.
pub(super) struct Running {
    pub(super) group: Group,
    pub(super) pump: LogPump,
    /// Sends requests to the pump.
    pub(super) reopen: mpsc::Sender<Reopen>,
    /// The pump sends the output to them.
    pub(super) clients: Clients,
    pub(super) input: Input,
    pub(super) env: Environment,
    pub(super) stop_signal: Signal,
}

impl Process {
    /// A container that runs, and the task that supervises it.
    pub(super) fn supervise(
        shared: &Arc<Shared>,
        dir: PathBuf,
        record: Record,
        running: Running,
    ) -> Arc<Self> {
        let group = Arc::new(running.group);
        let started_at = record.started_at;
        let process = Arc::new(Self {
            key: record.key(),
            dir,
            env: running.env,
            stop_signal: running.stop_signal,
            record: Mutex::new(record),
            group: Mutex::new(Some(group.clone())),
            stop_signal_sent: AtomicBool::new(false),
            state: watch::Sender::new(ContainerState::Running { started_at }),
            reopen: running.reopen,
            clients: Mutex::new(Some(running.clients)),
            input: running.input,
            cpu_time: AtomicU64::new(0),
        });
        let task = {
            let (shared, process) = (shared.clone(), process.clone());
            async move {
                let look_after = process.look_after(&shared, &group, running.pump);
                let _ = shared.abandon.run_until_cancelled(look_after).await;
            }
        };
        shared.tasks.spawn(task);
        process
    }

    /// A container that has ended.
    pub(super) fn ended(dir: PathBuf, record: Record, exit: Exit) -> Arc<Self> {
        Arc::new(Self {
            key: record.key(),
            dir,
            env: Environment::new(),
            stop_signal: Signal::TERM,
            record: Mutex::new(record),
            group: Mutex::new(None),
            stop_signal_sent: AtomicBool::new(false),
            state: watch::Sender::new(ContainerState::Exited(exit)),
            reopen: mpsc::channel(1).0,
            clients: Mutex::new(None),
            input: Input::new(InputKind::None, None),
            cpu_time: AtomicU64::new(0),
        })
    }

    pub(super) fn key(&self) -> &ContainerKey {
        &self.key
    }

    pub(super) fn is_of(&self, pod: &PodKey) -> bool {
        self.key.pod == pod.uid && self.record.lock().pod_attempt == Some(pod.attempt)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn env(&self) -> &Environment {
        &self.env
    }

    /// Its output from now on; `None` if it has ended.
    pub(super) fn subscribe(&self) -> Option<broadcast::Receiver<Piece>> {
        Some(self.clients.lock().as_ref()?.subscribe())
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// The named pipe of its standard input.
    pub(super) fn input_path(&self) -> PathBuf {
        self.dir.join(INPUT)
    }

    pub(super) fn working_dir(&self) -> PathBuf {
        self.record.lock().working_dir.clone()
    }

    /// The container as the verbs report it.
    pub(super) fn container(&self) -> Container {
        let state = self.state.borrow().clone();
        let mut container = Container::running(self.key.clone(), self.record.lock().started_at);
        container.state = state;
        if let Some(pid) = self.leader() {
            container.info.insert("pid".to_owned(), pid.to_string());
        }
        container
    }

    /// The leader of its process group, while it runs.
    pub(super) fn leader(&self) -> Option<i32> {
        Some(self.group.lock().as_ref()?.leader().as_raw_pid())
    }

    /// Its CPU time after this measurement. It never falls, although the kernel loses the time of a process that was
    /// not waited for.
    pub(super) fn cpu_time(&self, measured: u64) -> u64 {
        self.cpu_time.fetch_max(measured, Ordering::Relaxed).max(measured)
    }

    /// Waits for its end.
    pub(super) async fn exited(&self) {
        let ended = |state: &ContainerState| matches!(state, ContainerState::Exited(_));
        // The sender is in `self`.
        let _ = self.state.subscribe().wait_for(ended).await;
    }

    /// Sends the stop signal, at most once per container, and `SIGKILL` after the grace period. Returns when it has
    /// ended.
    pub(super) async fn stop(&self, grace: Duration) {
        if !grace.is_zero() {
            if !self.stop_signal_sent.swap(true, Ordering::SeqCst) {
                self.signal(self.stop_signal);
            }
            if tokio::time::timeout(grace, self.exited()).await.is_ok() {
                return;
            }
        }
        self.signal(Signal::KILL);
        self.exited().await;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = &*self.group.lock() {
            group.signal(signal);
        }
    }

    /// Reopens the log file.
    pub(super) async fn reopen_log(&self) -> Result<()> {
        let (done, reopened) = oneshot::channel();
        let reopened = match self.reopen.send(done).await {
            Ok(()) => reopened.await.unwrap_or_else(|_| self.touch_log()),
            Err(_) => self.touch_log(),
        };
        reopened.map_err(|error| RuntimeError::transient(&self.key, format!("reopen the log: {error}")))
    }

    /// For a container that has closed its output: creates the file, although nothing will be written to it.
    fn touch_log(&self) -> io::Result<()> {
        let path = self.record.lock().log_path.clone();
        path.map_or(Ok(()), |path| log::open(&path).map(drop))
    }

    /// Moves its output until it ends, then cleans up and returns how it ended.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the processes stay as they are.
    async fn look_after(&self, shared: &Shared, group: &Group, pump: LogPump) {
        let give_up = CancellationToken::new();
        let mut pumping = std::pin::pin!(pump.run(&give_up));
        let mut pumped = false;
        loop {
            tokio::select! {
                () = group.ended() => break,
                () = &mut pumping, if !pumped => pumped = true,
            }
        }
        let finished_at = shared.clock.now();
        let status = group.finish().await;
        if !pumped && tokio::time::timeout(DRAIN_TIMEOUT, &mut pumping).await.is_err() {
            give_up.cancel();
            pumping.await;
        }
        let started_at = self.record.lock().started_at;
        let exit = match status {
            Some(status) => {
                let code = exit_code(status);
                let mut container = Container::running(self.key.clone(), started_at);
                container.exited(code, finished_at);
                match container.state {
                    ContainerState::Exited(exit) => exit,
                    ContainerState::Running { .. } => unknown_exit(started_at, finished_at),
                }
            }
            None => unknown_exit(started_at, finished_at),
        };
        let record = {
            let mut record = self.record.lock();
            record.set_exit(&exit);
            record.clone()
        };
        if let Err(error) = record.write(&self.dir) {
            tracing::warn!(uid = %self.key.pod, container = %self.key.container, %error,
                "cannot write the record of a container's end");
        }
        tracing::debug!(uid = %self.key.pod, container = %self.key.container, code = exit.code, "container ended");
        *self.group.lock() = None;
        *self.clients.lock() = None;
        self.state.send_replace(ContainerState::Exited(exit));
        // An error means that there is no subscriber.
        shared.ended.report(self.key.clone());
    }
}

/// The end of a container whose exit code is unknown.
pub(super) fn unknown_exit(started_at: Timestamp, finished_at: Timestamp) -> Exit {
    Exit {
        started_at,
        finished_at,
        code: UNKNOWN_EXIT_CODE,
        reason: UNKNOWN_REASON.to_owned(),
        message: "the exit code is unknown, because the agent that started the container ended before it"
            .to_owned(),
    }
}

/// A pump, the sender of requests to reopen its file, and its clients.
pub(super) fn pump(
    shared: &Shared,
    log_path: Option<PathBuf>,
    log_file: Option<std::fs::File>,
    pipes: [Option<Receiver>; 2],
) -> (LogPump, mpsc::Sender<Reopen>, Clients) {
    let (sender, receiver) = mpsc::channel(1);
    let [stdout, stderr] = pipes;
    let clients = attach::clients();
    let pump = LogPump::new(
        log_path,
        log_file,
        stdout,
        stderr,
        receiver,
        clients.clone(),
        shared.clock,
    );
    (pump, sender, clients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_never_falls() {
        let now = kubelet_core::Clock::system().now();
        let record = Record {
            pod_uid: "u".into(),
            pod_attempt: Some(0),
            container: "main".into(),
            attempt: 0,
            working_dir: "/".into(),
            log_path: None,
            stop_signal: None,
            input: InputKind::None,
            started_at: now,
            process: None,
            exit: None,
        };
        let process = Process::ended("/".into(), record, unknown_exit(now, now));
        assert_eq!([7, 3, 9].map(|measured| process.cpu_time(measured)), [7, 7, 9]);
    }
}
