//! Attaches clients to a container: its output from now on, and its input.

use std::io;
use std::path::Path;
use std::sync::Arc;

use kubelet_core::runtime::streaming::ClientStreams;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::{self, Sender};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use super::container::Process;
use crate::verbs::{Result, RuntimeError};

/// How many pieces a client may be behind. A piece has at most 16 KiB.
const BACKLOG: usize = 64;

/// A piece of a container's output.
#[derive(Clone)]
pub(super) struct Piece {
    pub(super) is_stderr: bool,
    pub(super) bytes: Arc<[u8]>,
}

/// Where the output goes, beside the log.
pub(super) type Clients = broadcast::Sender<Piece>;

pub(super) fn clients() -> Clients {
    broadcast::Sender::new(BACKLOG)
}

/// The standard input of a container, as its record has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum InputKind {
    /// Empty.
    #[default]
    None,
    /// Open as long as the container runs.
    Open,
    /// Open until the first client has left (`stdinOnce`).
    Once,
}

/// This side of the standard input of a container.
pub(super) struct Input {
    pub(super) kind: InputKind,
    /// With [`InputKind::Once`]: taken by the first client.
    pub(super) once: Mutex<Option<Sender>>,
}

impl Input {
    pub(super) fn new(kind: InputKind, once: Option<Sender>) -> Self {
        Self {
            kind,
            once: Mutex::new(once),
        }
    }

    /// The pipe to write to, for one client.
    fn open(&self, path: &Path, about: &dyn std::fmt::Display) -> Result<Sender> {
        match self.kind {
            InputKind::None => Err(RuntimeError::permanent(
                about,
                "has no standard input, because its spec does not set stdin",
            )),
            InputKind::Open => {
                let opened = pipe::OpenOptions::new().open_sender(path);
                opened.map_err(|error: io::Error| {
                    RuntimeError::transient(about, format!("open its standard input: {error}"))
                })
            }
            InputKind::Once => self.once.lock().take().ok_or_else(|| {
                let message = "its standard input was already used by a client or closed by a restart of the agent \
                               (stdinOnce)";
                RuntimeError::permanent(about, message)
            }),
        }
    }
}

/// Runs until the container has ended and its output was written.
pub(super) async fn attach(
    shared: &Arc<Shared>,
    process: &Arc<Process>,
    streams: ClientStreams,
) -> Result<()> {
    let key = process.key();
    let Some(mut pieces) = process.subscribe() else {
        return Err(RuntimeError::permanent(key, "the container is not running"));
    };
    let (mut stdout, mut stderr) = (streams.stdout, streams.stderr);
    let input = match streams.stdin {
        Some(client) => Some((client, process.input().open(&process.input_path(), key)?)),
        None => None,
    };
    let input = async move {
        if let Some((mut client, mut pipe)) = input {
            // An error means that the container has closed its input, or that the client is gone.
            let _ = tokio::io::copy(&mut client, &mut pipe).await;
        }
    };
    let output = async move {
        loop {
            let piece = match pieces.recv().await {
                Ok(piece) => piece,
                Err(RecvError::Closed) => return Ok(()),
                Err(RecvError::Lagged(_)) => {
                    let message =
                        "the client was disconnected: it reads more slowly than the container writes";
                    return Err(RuntimeError::transient(key, message));
                }
            };
            let client = if piece.is_stderr { &mut stderr } else { &mut stdout };
            if let Some(client) = client
                && (client.write_all(&piece.bytes).await.is_err() || client.flush().await.is_err())
            {
                return Ok(());
            }
        }
    };
    let input = async {
        input.await;
        std::future::pending().await
    };
    tokio::select! {
        output = output => output,
        () = input => Ok(()),
        () = shared.abandon.cancelled() => Err(RuntimeError::transient(key, "the process runtime has ended")),
    }
}
