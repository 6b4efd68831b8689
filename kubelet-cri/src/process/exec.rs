//! Commands in a container.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::command;
use super::container::{DRAIN_TIMEOUT, Process};
use super::group::{Group, exit_code};
use crate::verbs::{ExecOutput, Result, RuntimeError};

/// How many bytes of each stream are kept; containerd's limit of `ExecSync`.
const MAX_OUTPUT: usize = 16 << 20;

/// Runs a command with the environment and in the working folder of a container.
pub(super) async fn exec_sync(
    shared: &Arc<Shared>,
    process: &Arc<Process>,
    argv: &[String],
) -> Result<ExecOutput> {
    let argv = argv.to_vec();
    in_container(shared, process, move |call| async move {
        let command = call
            .spawn(move |process, about| spawn(process, &argv, about))
            .await?;
        let gone = async {
            tokio::select! {
                () = call.gone() => {}
                () = call.container_ended() => {}
            }
        };
        command.run(gone, &call.about).await
    })
    .await
}

/// A call of a command.
pub(super) struct Call {
    shared: Arc<Shared>,
    process: Arc<Process>,
    about: String,
    cancel: CancellationToken,
}

/// Does the work in a task, which kills and reaps the command when the caller drops the call.
pub(super) async fn in_container<T, W>(
    shared: &Arc<Shared>,
    process: &Arc<Process>,
    work: impl FnOnce(Call) -> W,
) -> Result<T>
where
    T: Send + 'static,
    W: Future<Output = Result<T>> + Send + 'static,
{
    let about = format!("command in {}", process.key());
    if !process.container().is_running() {
        return Err(RuntimeError::permanent(about, "the container is not running"));
    }
    let cancel = CancellationToken::new();
    let _cancel_when_dropped = cancel.clone().drop_guard();
    let (answer, answered) = oneshot::channel();
    let work = work(Call {
        shared: shared.clone(),
        process: process.clone(),
        about: about.clone(),
        cancel,
    });
    shared.tasks.spawn(async move {
        // An error means that the caller dropped the call.
        let _ = answer.send(work.await);
    });
    answered
        .await
        .unwrap_or_else(|_| Err(RuntimeError::transient(about, "the process runtime has ended")))
}

impl Call {
    /// Waits until nobody waits for the command any more.
    pub(super) async fn gone(&self) {
        tokio::select! {
            () = self.cancel.cancelled() => {}
            () = self.shared.abandon.cancelled() => {}
        }
    }

    pub(super) async fn container_ended(&self) {
        self.process.exited().await;
    }

    /// Spawns on its own thread: a hung working folder delays only this command.
    pub(super) async fn spawn<T: Send + 'static>(
        &self,
        spawn: impl FnOnce(&Process, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (process, about) = (self.process.clone(), self.about.clone());
        let spawned = self.shared.tasks.spawn_blocking(move || spawn(&process, &about));
        spawned
            .await
            .unwrap_or_else(|error| Err(self.error(&error.to_string())))
    }

    pub(super) fn error(&self, message: &str) -> RuntimeError {
        RuntimeError::transient(&self.about, message)
    }
}

struct Running {
    group: Group,
    stdout: Receiver,
    stderr: Receiver,
}

fn spawn(process: &Process, argv: &[String], about: &str) -> Result<Running> {
    let dir = process.working_dir();
    let Some(mut command) = command::command(argv, process.env(), &dir) else {
        return Err(RuntimeError::permanent(about, "the command is empty"));
    };
    let program = argv.first().map_or("", String::as_str);
    let failed = |error: &io::Error| command::spawn_failed(about, program, &dir, error);
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| failed(&error))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let group = Group::of_child(child).map_err(|error| failed(&error))?;
    let receivers = stdout.zip(stderr).map(|(stdout, stderr)| {
        let stdout = Receiver::from_owned_fd(stdout.into())?;
        Ok::<_, io::Error>((stdout, Receiver::from_owned_fd(stderr.into())?))
    });
    match receivers {
        Some(Ok((stdout, stderr))) => Ok(Running {
            group,
            stdout,
            stderr,
        }),
        receivers => {
            group.kill_blocking();
            let error = receivers.and_then(std::result::Result::err);
            Err(failed(&error.unwrap_or_else(|| io::Error::other("no pipes"))))
        }
    }
}

impl Running {
    /// Runs until it ends or `gone` ends. After that, no process of its group is left.
    async fn run(mut self, gone: impl Future<Output = ()>, about: &str) -> Result<ExecOutput> {
        let mut output = ExecOutput::default();
        let ended = {
            let read = async {
                tokio::join!(
                    keep(&mut self.stdout, &mut output.stdout),
                    keep(&mut self.stderr, &mut output.stderr)
                );
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = self.group.ended() => true,
                () = gone => false,
                () = read => false,
            }
        };
        if !ended {
            self.group.kill().await;
            return Err(RuntimeError::transient(
                about,
                "killed, because its container ended",
            ));
        }
        let status = self.group.finish().await;
        // Its last output.
        let rest = async {
            tokio::join!(
                keep(&mut self.stdout, &mut output.stdout),
                keep(&mut self.stderr, &mut output.stderr)
            );
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
        match status {
            Some(status) => {
                output.exit_code = exit_code(status);
                Ok(output)
            }
            None => Err(RuntimeError::transient(about, "its exit code is unknown")),
        }
    }
}

/// Reads to the end and keeps the first bytes, up to the limit.
///
/// # Cancel safety
///
/// The bytes that were read are kept.
async fn keep(pipe: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        let room = MAX_OUTPUT - kept.len();
        kept.extend_from_slice(&buffer[..n.min(room)]);
    }
}
