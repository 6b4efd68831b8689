//! A command over WebSocket: one channel for each of input, output, errors, status and sizes.

use kubelet_core::runtime::streaming::{ClientStreams, TerminalSize};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::sync::watch;

use super::super::status::Status;
use super::super::websocket::message::Codec;
use super::super::websocket::socket::{self, INPUT_BUFFER, OUTPUT_BUFFER, Sender};
use super::{Session, terminal};

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

impl Session {
    pub(super) async fn over_websocket<T: AsyncRead + AsyncWrite + Unpin>(self, io: T) {
        let (sender, receiver) = socket::open(io, Codec::of(self.protocol));
        let idle = self.timeouts.idle;
        let (stdin_writer, stdin) = pipe(self.options.stdin, INPUT_BUFFER);
        let (resize_writer, resize) = pipe(true, INPUT_BUFFER);
        let inbound = vec![stdin_writer, None, None, None, resize_writer];
        let work = self.run_over_websocket(&sender, stdin, resize);
        socket::serve(&sender, receiver, inbound, idle, work).await;
    }

    async fn run_over_websocket<T: AsyncRead + AsyncWrite + Unpin>(
        self,
        sender: &Sender<T>,
        stdin: Option<DuplexStream>,
        resize: Option<DuplexStream>,
    ) {
        // An empty message on the lowest channel that we write says that the connection stands.
        let lowest = match self.options {
            options if options.stdout => STDOUT,
            options if options.stderr => STDERR,
            _ => ERROR,
        };
        sender.send(lowest, &[]).await;
        let (stdout_reader, stdout) = pipe(self.options.stdout, OUTPUT_BUFFER);
        let (stderr_reader, stderr) = pipe(self.options.stderr, OUTPUT_BUFFER);
        let (sizes, terminal) = watch::channel::<Option<TerminalSize>>(None);
        let mut streams = ClientStreams::default();
        streams.stdin = stdin.map(|s| Box::new(s) as _);
        streams.stdout = stdout.map(|s| Box::new(s) as _);
        streams.stderr = stderr.map(|s| Box::new(s) as _);
        streams.terminal = self.options.tty.then_some(terminal);
        let name = self.command.command().to_vec();
        let run = async {
            tokio::join!(
                self.command.run(streams),
                sender.pump(STDOUT, stdout_reader),
                sender.pump(STDERR, stderr_reader),
            )
            .0
        };
        let result = tokio::select! {
            result = run => result,
            never = terminal::follow(resize, sizes) => match never {},
        };
        let json = !matches!(self.protocol, "" | "channel.k8s.io" | "base64.channel.k8s.io");
        if json || result != Ok(0) {
            let status = Status::of(&result, self.failure, &name);
            sender.send(ERROR, &status.bytes(json)).await;
        }
    }
}

/// Both ends of a channel's bytes.
fn pipe(wanted: bool, buffer: usize) -> (Option<DuplexStream>, Option<DuplexStream>) {
    wanted.then(|| duplex(buffer)).unzip()
}
