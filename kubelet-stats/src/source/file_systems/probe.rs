//! Questions that may never be answered.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::StatFsResult;
use crate::source::FileUsage;

/// The questions that have not been answered, by path.
#[derive(Default)]
pub(super) struct Probes {
    stats: Pending<io::Result<StatFsResult>>,
    files: Pending<io::Result<Vec<Option<FileUsage>>>>,
}

impl Probes {
    /// Asks on another thread. `None` if there is no answer in time, or an earlier question about the path still waits.
    pub(super) async fn ask(
        &self,
        path: &Path,
        within: Duration,
        question: impl FnOnce() -> io::Result<StatFsResult> + Send + 'static,
    ) -> Option<io::Result<StatFsResult>> {
        self.stats.ask(path.to_owned(), within, question).await
    }

    /// As [`ask`](Self::ask), for sizes of files.
    pub(super) async fn ask_files(
        &self,
        path: &Path,
        within: Duration,
        question: impl FnOnce() -> io::Result<Vec<Option<FileUsage>>> + Send + 'static,
    ) -> Option<io::Result<Vec<Option<FileUsage>>>> {
        self.files.ask(path.to_owned(), within, question).await
    }
}

/// Late answers, by key.
struct Pending<T>(Mutex<HashMap<PathBuf, oneshot::Receiver<T>>>);

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + 'static> Pending<T> {
    async fn ask(
        &self,
        key: PathBuf,
        within: Duration,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T>
    where
        PathBuf: Hash + Eq,
    {
        if self.still_waits(&key) {
            return None;
        }
        let (answer, mut answered) = oneshot::channel();
        // The thread returns when the file system does. The runtime waits for it at its end; nobody else does.
        drop(spawn_blocking(move || answer.send(question())));
        match timeout(within, &mut answered).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                tracing::warn!(path = %key.display(), ?within, "the file system does not answer");
                self.0.lock().insert(key, answered);
                None
            }
        }
    }

    fn still_waits(&self, key: &Path) -> bool {
        let mut pending = self.0.lock();
        let Some(answered) = pending.get_mut(key) else {
            return false;
        };
        if matches!(answered.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            return true;
        }
        pending.remove(key);
        false
    }
}
