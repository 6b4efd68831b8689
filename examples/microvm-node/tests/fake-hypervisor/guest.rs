//! A guest: a shell in the place of a kernel, and its serial console.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::path;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Guest {
    pid: Pid,
    /// Ends with the guest, after its console.
    console: JoinHandle<()>,
}

impl Guest {
    pub(crate) async fn boot(config: &Value) -> io::Result<Self> {
        let kernel = std::fs::read(path(config, "/payload/kernel")?)?;
        if kernel.is_empty() {
            return Err(io::Error::other("the kernel is empty"));
        }
        let listener = UnixListener::bind(path(config, "/serial/socket")?)?;
        let mut shell = Command::new("sh")
            .arg(path(config, "/disks/0/path")?)
            .env("CONFIG", path(config, "/disks/1/path")?)
            .env("EXIT", path(config, "/disks/2/path")?)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pid = shell.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("the guest has no pid"))?;
        let streams = shell.stdin.take().zip(shell.stdout.take());
        let (stdin, stdout) = streams.ok_or_else(|| io::Error::other("the guest has no streams"))?;
        Ok(Self { pid, console: tokio::spawn(console(listener, shell, stdin, stdout)) })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.console.is_finished()
    }

    pub(crate) fn press_power_button(&self) {
        let _ = kill_process_group(self.pid, Signal::TERM);
    }

    pub(crate) async fn kill(self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        let _ = self.console.await;
    }
}

/// Keeps what the guest says until somebody listens. Who connects later takes the place of who listens.
async fn console(listener: UnixListener, mut shell: Child, mut stdin: ChildStdin, mut stdout: ChildStdout) {
    let (mut said, mut open) = (Vec::new(), true);
    // A real guest boots for longer than the agent needs to connect.
    let first = tokio::time::timeout(CONNECT_TIMEOUT, listener.accept()).await;
    let mut client = first.ok().and_then(Result::ok).map(|(stream, _)| stream);
    let (mut output, mut typed) = ([0; 4096], [0; 4096]);
    while open {
        if let Some(stream) = &mut client
            && stream.write_all(&said).await.is_ok()
        {
            said.clear();
        }
        tokio::select! {
            read = stdout.read(&mut output) => match read {
                Ok(count @ 1..) => said.extend_from_slice(&output[..count]),
                _ => open = false,
            },
            Ok((stream, _)) = listener.accept() => client = Some(stream),
            read = async { client.as_mut()?.read(&mut typed).await.ok() }, if client.is_some() => match read {
                Some(count @ 1..) => drop(stdin.write_all(&typed[..count]).await),
                _ => client = None,
            },
        }
    }
    // The guest is gone before its console is: who sees the end of the console finds the VM ended.
    let _ = shell.wait().await;
    drop(listener);
    if let Some(mut stream) = client {
        let _ = stream.shutdown().await;
    }
}
