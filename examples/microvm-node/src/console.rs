//! The serial console of a VM: what it says goes to the container's log and to attached clients, what they type goes to it.

use std::io;

use bytes::Bytes;
use kubelet_cri::verbs::{ContainerLog, LogStream};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{broadcast, mpsc};

/// How many pieces a client may be behind before it is disconnected: the guest does not wait for it.
const PIECES: usize = 256;

pub(crate) struct Console {
    log: Mutex<Option<ContainerLog>>,
    output: broadcast::Sender<Bytes>,
    input: mpsc::Sender<Bytes>,
    typed: tokio::sync::Mutex<mpsc::Receiver<Bytes>>,
}

impl Console {
    pub(crate) fn new(log: Option<ContainerLog>) -> Self {
        let (input, typed) = mpsc::channel(1);
        Self {
            log: Mutex::new(log),
            output: broadcast::Sender::new(PIECES),
            input,
            typed: tokio::sync::Mutex::new(typed),
        }
    }

    /// Reads the console until the engine closes it.
    pub(crate) async fn carry(&self, mut stream: UnixStream) -> io::Result<()> {
        let (mut from, mut to) = stream.split();
        let (mut typed, mut buffer) = (self.typed.lock().await, vec![0; 8192]);
        loop {
            tokio::select! {
                read = from.read(&mut buffer) => match read? {
                    0 => return Ok(()),
                    count => self.say(&buffer[..count]),
                },
                Some(keys) = typed.recv() => to.write_all(&keys).await?,
            }
        }
    }

    fn say(&self, bytes: &[u8]) {
        report(self.log.lock().as_mut().map_or(Ok(()), |log| log.write(LogStream::Stdout, bytes)));
        // An error means that nobody is attached.
        let _ = self.output.send(Bytes::copy_from_slice(bytes));
    }

    /// What the guest says from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Bytes> {
        self.output.subscribe()
    }

    /// Where a client types.
    pub(crate) fn keyboard(&self) -> mpsc::Sender<Bytes> {
        self.input.clone()
    }

    /// After a rotation.
    pub(crate) fn reopen(&self) -> io::Result<()> {
        self.log.lock().as_mut().map_or(Ok(()), ContainerLog::reopen)
    }

    /// When the VM has ended.
    pub(crate) fn end(&self) {
        report(self.log.lock().as_mut().map_or(Ok(()), ContainerLog::end));
    }
}

/// A disk that is full must not end the guest.
fn report(written: io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!(%error, "cannot write a container log, output is lost");
    }
}
