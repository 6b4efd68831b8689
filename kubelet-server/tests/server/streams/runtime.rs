//! A runtime whose containers are processes of this machine.

use std::io;
use std::path::Path;
use std::process::Stdio;

use async_trait::async_trait;
use kubelet_core::runtime::streaming::{
    ByteStream, ClientStreams, PortForwarder, RemoteCommand, StreamError, TerminalSize,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::oneshot;

/// A command as a process. `/w` is the folder of the test.
pub(super) struct Process {
    pub(super) arguments: Vec<String>,
    pub(super) folder: std::path::PathBuf,
    /// Dropped with the command.
    pub(super) alive: Option<oneshot::Sender<()>>,
}

impl Process {
    pub(super) fn new(arguments: &[&str], folder: &Path) -> Box<Self> {
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        Box::new(Self {
            arguments,
            folder: folder.to_owned(),
            alive: None,
        })
    }
}

#[async_trait]
impl RemoteCommand for Process {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        let folder = self.folder.to_str().unwrap();
        let arguments: Vec<String> = self
            .arguments
            .iter()
            .map(|a| a.replace("/w/", &format!("{folder}/")))
            .collect();
        let stdio = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
        let mut child = Command::new(&arguments[0])
            .args(&arguments[1..])
            .stdin(stdio(streams.stdin.is_some()))
            .stdout(stdio(streams.stdout.is_some()))
            .stderr(stdio(streams.stderr.is_some()))
            .kill_on_drop(true)
            .spawn()
            .map_err(StreamError::other)?;
        let input = {
            let pipe = child.stdin.take();
            async move {
                if let (Some(mut from), Some(mut to)) = (streams.stdin, pipe) {
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                }
                std::future::pending::<()>().await;
            }
        };
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let output = async {
            tokio::join!(copy(stdout, streams.stdout), copy(stderr, streams.stderr));
            child.wait().await
        };
        let status = tokio::select! {
            status = output => status.map_err(StreamError::other)?,
            () = input => unreachable!(),
        };
        Ok(status.code().unwrap_or(137))
    }

    fn command(&self) -> &[String] {
        &self.arguments
    }
}

async fn copy(
    from: Option<impl tokio::io::AsyncRead + Unpin>,
    to: Option<Box<dyn tokio::io::AsyncWrite + Send + Unpin>>,
) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    }
}

/// A command that cannot be started.
pub(super) struct Missing(pub(super) String);

#[async_trait]
impl RemoteCommand for Missing {
    async fn run(self: Box<Self>, _: ClientStreams) -> Result<i32, StreamError> {
        Err(StreamError::other(self.0))
    }
}

/// The recorded shell with a terminal. It shows what it showed then, and the size of the terminal.
pub(super) struct Shell {
    pub(super) banner: Vec<u8>,
    pub(super) name: Vec<String>,
}

#[async_trait]
impl RemoteCommand for Shell {
    async fn run(self: Box<Self>, streams: ClientStreams) -> Result<i32, StreamError> {
        assert!(streams.stderr.is_none());
        let (mut stdin, mut stdout) = (streams.stdin.unwrap(), streams.stdout.unwrap());
        stdout.write_all(&self.banner).await.map_err(StreamError::other)?;
        let mut line = vec![0; 18];
        stdin.read_exact(&mut line).await.map_err(StreamError::other)?;
        let mut terminal = streams.terminal.unwrap();
        let size = terminal
            .wait_for(Option::is_some)
            .await
            .map_err(StreamError::other)?
            .unwrap();
        let TerminalSize { width, height } = size;
        let text = String::from_utf8(line).unwrap().replace('\n', "\r\n");
        let text = format!("{text}{height} {width}\r\n");
        stdout
            .write_all(text.as_bytes())
            .await
            .map_err(StreamError::other)?;
        Ok(5)
    }

    fn command(&self) -> &[String] {
        &self.name
    }
}

/// A pod with a web server on port 8080, which sends one answer for each request.
pub(super) struct Pod {
    pub(super) name: String,
    /// By path.
    pub(super) answers: Vec<(String, Vec<u8>)>,
    pub(super) refusal: String,
}

#[async_trait]
impl PortForwarder for Pod {
    async fn connect(&self, port: u16) -> Result<Box<dyn ByteStream>, StreamError> {
        if port != 8080 {
            return Err(StreamError::other(&self.refusal));
        }
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                if theirs.read_buf(&mut request).await? == 0 {
                    return Ok(());
                }
            }
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap();
            let (_, answer) = answers.iter().find(|(p, _)| p == path).unwrap();
            theirs.write_all(answer).await?;
            theirs.shutdown().await?;
            // The client ends its side, too.
            tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await?;
            io::Result::Ok(())
        });
        Ok(Box::new(ours))
    }

    fn pod(&self) -> &str {
        &self.name
    }
}
