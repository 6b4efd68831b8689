//! A command over SPDY: one stream for each of input, output, errors, sizes and status.

use std::future::pending;

use kubelet_core::runtime::streaming::{ClientStreams, StreamOptions, TerminalSize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;

use super::super::spdy::{Connection, Handle, Stream};
use super::super::status::Status;
use super::{Session, terminal};

/// The streams that a client opened.
#[derive(Default)]
struct Opened {
    error: Option<Stream>,
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    resize: Option<Stream>,
}

impl Opened {
    fn slot(&mut self, kind: &str) -> Option<&mut Option<Stream>> {
        Some(match kind {
            "error" => &mut self.error,
            "stdin" => &mut self.stdin,
            "stdout" => &mut self.stdout,
            "stderr" => &mut self.stderr,
            "resize" => &mut self.resize,
            _ => return None,
        })
    }
}

impl Session {
    pub(super) async fn over_spdy<T: AsyncRead + AsyncWrite>(self, io: T) {
        let (connection, handle) = Connection::server(io);
        let connection = connection.idle_timeout(self.timeouts.idle);
        let command = async {
            self.run_over_spdy(&handle).await;
            handle.close();
            // The connection ends once all is sent.
            pending::<()>().await;
        };
        tokio::select! {
            result = connection.run() => if let Err(error) = result {
                debug!(%error, "the streams of a command ended early");
            },
            () = command => {}
        }
    }

    async fn run_over_spdy(self, handle: &Handle) {
        let Some(opened) = timeout(
            self.timeouts.creation,
            wait_for_streams(handle, self.protocol, self.options),
        )
        .await
        .ok()
        .flatten() else {
            return debug!("timed out waiting for client to create streams");
        };
        let Opened {
            mut error,
            mut stdin,
            stdout,
            stderr,
            resize,
        } = opened;
        if self.protocol == "channel.k8s.io" {
            // The first version of the protocol is served as the reference serves it, with its faults.
            if let Some(error) = error.take() {
                error.reset();
            }
            if let Some(stdin) = &mut stdin {
                let _ = stdin.shutdown().await;
            }
        }
        let outputs: Vec<u32> = [&stdout, &stderr].into_iter().flatten().map(Stream::id).collect();
        let (sizes, terminal) = watch::channel::<Option<TerminalSize>>(None);
        let mut streams = ClientStreams::default();
        streams.stdin = stdin.map(|s| Box::new(s) as _);
        streams.stdout = stdout.map(|s| Box::new(s) as _);
        streams.stderr = stderr.map(|s| Box::new(s) as _);
        streams.terminal = self.options.tty.then_some(terminal);
        let name = self.command.command().to_vec();
        let result = tokio::select! {
            result = self.command.run(streams) => result,
            never = terminal::follow(resize, sizes) => match never {},
        };
        if result.is_ok() {
            for id in outputs {
                handle.finish(id);
            }
        }
        if let Some(mut error) = error {
            let status = Status::of(&result, self.failure, &name);
            let _ = error
                .write_all(&status.bytes(self.protocol == "v4.channel.k8s.io"))
                .await;
        }
    }
}

/// Accepts streams until all that were asked for are there.
async fn wait_for_streams(handle: &Handle, protocol: &str, options: StreamOptions) -> Option<Opened> {
    let resizes = ["v4.channel.k8s.io", "v3.channel.k8s.io"].contains(&protocol);
    let wanted = [
        true,
        options.stdin,
        options.stdout,
        options.stderr,
        options.tty && resizes,
    ];
    let mut missing = wanted.into_iter().filter(|w| *w).count();
    let mut opened = Opened::default();
    while missing > 0 {
        let stream = handle.accept().await?;
        let kind = stream.headers().get("streamType").unwrap_or_default().to_owned();
        match opened.slot(&kind) {
            Some(slot) if slot.is_none() => {
                stream.reply();
                *slot = Some(stream);
                missing -= 1;
            }
            _ => {
                debug!(kind, "unexpected stream");
                stream.reply();
            }
        }
    }
    Some(opened)
}
