//! Commands in a container with a client's input and output, through pipes or a terminal.

use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;

use kubelet_core::runtime::streaming::{ClientStreams, TerminalSize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::command;
use super::container::{DRAIN_TIMEOUT, Process};
use super::exec::{Call, in_container};
use super::group::{Group, exit_code};
use super::terminal::Terminal;
use crate::verbs::{Result, RuntimeError};

/// The most bytes that are read at once.
const BLOCK: usize = 32 * 1024;

type Input = Box<dyn AsyncRead + Send + Unpin>;
type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Runs a command with the environment and in the working folder of a container, with these streams. It is killed, with
/// its whole group, when the caller drops the call or the container ends.
pub(super) async fn exec(
    shared: &Arc<Shared>,
    process: &Arc<Process>,
    argv: &[String],
    streams: ClientStreams,
) -> Result<i32> {
    let argv = argv.to_vec();
    in_container(shared, process, move |call| async move {
        let ends = Ends {
            stdin: streams.stdin.is_some(),
            stdout: streams.stdout.is_some(),
            stderr: streams.stderr.is_some(),
        };
        match streams.terminal {
            None => {
                let spawned = call.spawn(move |process, about| spawn(process, &argv, ends, about));
                let (group, pipes) = spawned.await?;
                pipes
                    .run(&group, &call, streams.stdin, streams.stdout, streams.stderr)
                    .await
            }
            Some(sizes) => {
                let size = *sizes.borrow();
                let spawned =
                    call.spawn(move |process, about| spawn_in_terminal(process, &argv, size, about));
                let (group, terminal) = spawned.await?;
                let output = streams.stdout.or(streams.stderr);
                run_in_terminal(terminal, sizes, &group, &call, streams.stdin, output).await
            }
        }
    })
    .await
}

/// Which streams the client has.
#[derive(Clone, Copy)]
struct Ends {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

/// This side of the command's pipes.
struct Pipes {
    stdin: Option<Sender>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
}

fn spawn(process: &Process, argv: &[String], ends: Ends, about: &str) -> Result<(Group, Pipes)> {
    let dir = process.working_dir();
    let Some(mut command) = command::command(argv, process.env(), &dir) else {
        return Err(RuntimeError::permanent(about, "the command is empty"));
    };
    let program = argv.first().map_or("", String::as_str);
    let failed = |error: &io::Error| command::spawn_failed(about, program, &dir, error);
    let stdio = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
    let spawned = command
        .stdin(stdio(ends.stdin))
        .stdout(stdio(ends.stdout))
        .stderr(stdio(ends.stderr))
        .spawn();
    let mut child = spawned.map_err(|error| failed(&error))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let group = Group::of_child(child).map_err(|error| failed(&error))?;
    let pipes = || -> io::Result<Pipes> {
        Ok(Pipes {
            stdin: stdin.map(|pipe| Sender::from_owned_fd(pipe.into())).transpose()?,
            stdout: stdout
                .map(|pipe| Receiver::from_owned_fd(pipe.into()))
                .transpose()?,
            stderr: stderr
                .map(|pipe| Receiver::from_owned_fd(pipe.into()))
                .transpose()?,
        })
    };
    match pipes() {
        Ok(pipes) => Ok((group, pipes)),
        Err(error) => {
            group.kill_blocking();
            Err(failed(&error))
        }
    }
}

fn spawn_in_terminal(
    process: &Process,
    argv: &[String],
    size: Option<TerminalSize>,
    about: &str,
) -> Result<(Group, Terminal)> {
    let dir = process.working_dir();
    let program = argv.first().map_or("", String::as_str);
    let failed = |error: &io::Error| command::spawn_failed(about, program, &dir, error);
    let Some(command) = command::in_new_session(argv, process.env(), &dir) else {
        return Err(RuntimeError::permanent(about, "the command is empty"));
    };
    let (terminal, child) = Terminal::spawn(command, size).map_err(|error| failed(&error))?;
    let group = Group::of_child(child).map_err(|error| failed(&error))?;
    Ok((group, terminal))
}

impl Pipes {
    async fn run(
        self,
        group: &Group,
        call: &Call,
        stdin: Option<Input>,
        stdout: Option<Output>,
        stderr: Option<Output>,
    ) -> Result<i32> {
        let over = CancellationToken::new();
        let pipe = self.stdin;
        let input = async move {
            if let (Some(mut client), Some(mut pipe)) = (stdin, pipe) {
                // An error means that the command has closed its input, or that the client is gone.
                let _ = tokio::io::copy(&mut client, &mut pipe).await;
            }
        };
        let output = async {
            tokio::join!(
                forward(self.stdout, stdout, &over),
                forward(self.stderr, stderr, &over)
            );
        };
        until_end(group, call, &over, input, output).await
    }
}

async fn run_in_terminal(
    terminal: Terminal,
    mut sizes: watch::Receiver<Option<TerminalSize>>,
    group: &Group,
    call: &Call,
    stdin: Option<Input>,
    stdout: Option<Output>,
) -> Result<i32> {
    let over = CancellationToken::new();
    let resize = async {
        loop {
            let size = *sizes.borrow_and_update();
            if let Some(size) = size {
                terminal.resize(size);
            }
            if sizes.changed().await.is_err() {
                return;
            }
        }
    };
    let typed = async {
        let Some(mut client) = stdin else { return };
        let mut buffer = vec![0; BLOCK];
        while let Ok(n @ 1..) = client.read(&mut buffer).await {
            if terminal.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    };
    let input = async {
        tokio::join!(resize, typed);
    };
    let output = forward(Some(&terminal), stdout, &over);
    until_end(group, call, &over, input, output).await
}

/// Runs until the command has ended and its output was written. After that, no process of its group is left.
async fn until_end(
    group: &Group,
    call: &Call,
    over: &CancellationToken,
    input: impl Future<Output = ()>,
    output: impl Future<Output = ()>,
) -> Result<i32> {
    let ended = async {
        tokio::select! {
            () = group.ended() => {}
            // What remains of the container is killed with it.
            () = call.container_ended() => group.signal(rustix::process::Signal::KILL),
        }
        group.ended().await;
        let status = group.finish().await;
        over.cancel();
        status
    };
    let mut work = pin!(async { tokio::join!(ended, output).0 });
    let mut input = pin!(input);
    let mut input_done = false;
    let status = loop {
        tokio::select! {
            status = &mut work => break status,
            () = &mut input, if !input_done => input_done = true,
            () = call.gone() => {
                group.kill().await;
                return Err(call.error("killed, because its client is gone"));
            }
        }
    };
    status
        .map(exit_code)
        .ok_or_else(|| call.error("its exit code is unknown"))
}

/// What a command writes to.
trait Source {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Source for Receiver {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }
}

impl Source for &Terminal {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Terminal::read(self, buffer).await
    }
}

/// Writes all output to the client. If the client does not read any more, the command's next write fails.
async fn forward(source: Option<impl Source>, client: Option<Output>, over: &CancellationToken) {
    let (Some(mut source), Some(mut client)) = (source, client) else {
        return;
    };
    let mut buffer = vec![0; BLOCK];
    loop {
        let read = tokio::select! {
            biased;
            read = source.read(&mut buffer) => read,
            // Only a process that left the group can still hold the other end open.
            () = over.cancelled() => {
                let rest = tokio::time::timeout(DRAIN_TIMEOUT, source.read(&mut buffer)).await;
                rest.unwrap_or(Ok(0))
            }
        };
        let Ok(n @ 1..) = read else { return };
        if client.write_all(&buffer[..n]).await.is_err() || client.flush().await.is_err() {
            return;
        }
    }
}
