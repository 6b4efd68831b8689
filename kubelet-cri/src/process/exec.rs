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

/// Runs a command with the environment and in the working folder of a container. A task kills and reaps the command
/// when the caller drops the call or the container ends.
pub(super) async fn exec_sync(
    shared: &Arc<Shared>,
    process: &Arc<Process>,
    argv: &[String],
) -> Result<ExecOutput> {
    let about = format!("command in {}", process.key());
    if !process.container().is_running() {
        return Err(RuntimeError::permanent(about, "the container is not running"));
    }
    let cancel = CancellationToken::new();
    let _cancel_when_dropped = cancel.clone().drop_guard();
    let (answer, answered) = oneshot::channel();
    let task = {
        let (shared, process, argv, about) = (shared.clone(), process.clone(), argv.to_vec(), about.clone());
        async move {
            let gone = async {
                tokio::select! {
                    () = cancel.cancelled() => {}
                    () = shared.abandon.cancelled() => {}
                    () = process.exited() => {}
                }
            };
            let output = match spawn(&shared, &process, argv, &about).await {
                Ok(command) => command.run(gone, &about).await,
                Err(error) => Err(error),
            };
            // An error means that the caller dropped the call.
            let _ = answer.send(output);
        }
    };
    shared.tasks.spawn(task);
    answered
        .await
        .unwrap_or_else(|_| Err(RuntimeError::transient(about, "the process runtime has ended")))
}

struct Running {
    group: Group,
    stdout: Receiver,
    stderr: Receiver,
}

/// On its own thread: a hung working folder delays only this command.
async fn spawn(shared: &Shared, process: &Arc<Process>, argv: Vec<String>, about: &str) -> Result<Running> {
    let (process, about_) = (process.clone(), about.to_owned());
    let spawned = shared
        .tasks
        .spawn_blocking(move || spawn_blocking(&process, &argv, &about_));
    spawned
        .await
        .unwrap_or_else(|error| Err(RuntimeError::transient(about, error.to_string())))
}

fn spawn_blocking(process: &Process, argv: &[String], about: &str) -> Result<Running> {
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
