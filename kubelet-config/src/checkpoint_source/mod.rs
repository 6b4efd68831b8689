//! A source with a copy of its pods on disk.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Clock, Disk, PodExt, PodSource, PodUid, SourceUpdate};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::source_stream::{Words, source_stream};

mod file;

use file::{Checkpoint, CheckpointFile};

/// How long to wait for the source before its pods are restored from the checkpoint.
const PATIENCE: Duration = Duration::from_secs(10);
/// Writes are at least this far apart: statuses change often, and flash memory wears out.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Saves the pods of a source on disk. A node that restarts while the source is unavailable still runs these pods.
/// The kubelet has no such feature: after a restart without its API server it knows no pods of the API server.
///
/// It passes all updates of the source on and writes the pods to a file. It writes at once after a quiet time, else
/// within a second. Each write is atomic and flushed to disk. After a restart, if the source is unavailable, has
/// ended, or sends nothing within the [patience](Self::patience), it sends the pods of the file as a snapshot. Then
/// it sends [`Unavailable`](SourceUpdate::Unavailable) with the time of the checkpoint. The first snapshot of the
/// source itself replaces these pods, however late it is.
///
/// A file that is damaged, belongs to another source or has a later version is renamed to `<file>.corrupt`,
/// `<file>.foreign` or `<file>.newer` and reported as a [`Problem`](SourceUpdate::Problem). A failing disk is
/// reported once as a problem and delays nothing.
///
/// The file holds whole pods with any secrets in them, so only its owner can read it. Two sources must not share a
/// file.
///
/// ```
/// use futures::stream;
/// use kubelet_config::{CheckpointSource, PodConfig, StreamSource};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("mine.checkpoint");
/// let mine = StreamSource::new("mine", stream::iter([vec![]]));
/// let config = PodConfig::builder()
///     .source(CheckpointSource::new(mine, path))
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CheckpointSource {
    inner: Box<dyn PodSource>,
    path: PathBuf,
    patience: Duration,
    clock: Clock,
    disk: Disk,
}

impl CheckpointSource {
    /// The source `inner`, with its pods saved in the file `path`. The folder is created if it does not exist.
    pub fn new(inner: impl PodSource, path: impl Into<PathBuf>) -> Self {
        Self {
            inner: Box::new(inner),
            path: path.into(),
            patience: PATIENCE,
            clock: Clock::default(),
            disk: Disk::default(),
        }
    }

    /// How long to wait for the source before its pods are restored from the checkpoint. Default: 10 seconds.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// What dates the checkpoint. Default: the system's clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Who reads and writes the file. Default: tokio's blocking threads.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }
}

impl PodSource for CheckpointSource {
    /// The name of the source within.
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// Dropping the stream drops the inner source. A write in progress completes; later updates are not saved.
    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        source_stream(|words| async move {
            let file = CheckpointFile::new(self.path, self.inner.name());
            let keeper = Keeper {
                restorable: None,
                patience_ends: Instant::now() + self.patience,
                file,
                clock: self.clock,
                disk: self.disk,
                words,
                pods: None,
                dirty: false,
                next_write: Instant::now(),
                write_trouble: None,
            };
            keeper.run(self.inner.updates()).await;
        })
    }
}

type Writing = BoxFuture<'static, io::Result<()>>;

/// A source at work.
struct Keeper {
    /// The pods found on disk, until they are sent or no longer needed.
    restorable: Option<Checkpoint>,
    patience_ends: Instant,
    file: CheckpointFile,
    clock: Clock,
    disk: Disk,
    words: Words,
    /// What the source said, once it has said all.
    pods: Option<BTreeMap<PodUid, Arc<Pod>>>,
    /// Whether that is other than what is on disk.
    dirty: bool,
    next_write: Instant,
    /// Reported once, until a write succeeds.
    write_trouble: Option<String>,
}

impl Keeper {
    async fn run(mut self, mut inner: BoxStream<'static, SourceUpdate>) {
        self.load().await;
        let mut writing: Option<Writing> = None;
        loop {
            if writing.is_none() && self.dirty && self.next_write <= Instant::now() {
                writing = self.write();
            }
            tokio::select! {
                biased;
                written = on(&mut writing) => {
                    writing = None;
                    self.wrote(written).await;
                }
                word = inner.next() => match word {
                    Some(word) => self.pass(word).await,
                    None => break,
                },
                () = sleep_until(self.patience_ends), if self.restorable.is_some() => {
                    self.restore("the source sent nothing").await;
                }
                () = sleep_until(self.next_write), if self.dirty && writing.is_none() => {}
            }
        }
        self.restore("the source has ended").await;
        if let Some(writing) = writing {
            let written = writing.await;
            self.wrote(written).await;
        }
        if self.dirty
            && let Some(writing) = self.write()
        {
            let written = writing.await;
            self.wrote(written).await;
        }
    }

    async fn load(&mut self) {
        let file = self.file.clone();
        let item = file.path().display().to_string();
        let load = self.disk.run(move || Ok(file.load()));
        let message = match timeout_at(self.patience_ends, load).await {
            Ok(Ok(Ok(found))) => {
                self.restorable = found;
                return;
            }
            Ok(Ok(Err(message))) => message,
            Ok(Err(error)) => format!("cannot be read: {error}"),
            Err(_) => "cannot be read in time".into(),
        };
        self.words.say(SourceUpdate::Problem { item, message }).await;
    }

    /// Passes on what the source says.
    async fn pass(&mut self, word: SourceUpdate) {
        let mut away = None;
        match &word {
            SourceUpdate::Snapshot(pods) => {
                // From here on the source speaks for itself.
                self.restorable = None;
                self.pods = Some(pods.iter().map(|pod| (pod.uid(), pod.clone())).collect());
                self.dirty = true;
            }
            SourceUpdate::Applied(pod) => {
                if let Some(pods) = &mut self.pods {
                    let (uid, key) = (pod.uid(), pod.key());
                    // The source has one pod of a name.
                    pods.retain(|other, known| *other == uid || known.key() != key);
                    pods.insert(uid, pod.clone());
                    self.dirty = true;
                }
            }
            SourceUpdate::Deleted(uid) => {
                if let Some(pods) = &mut self.pods {
                    self.dirty |= pods.remove(uid).is_some();
                }
            }
            SourceUpdate::Unavailable { message } => away = Some(message.clone()),
            _ => {}
        }
        match away {
            Some(message) if self.restorable.is_some() => self.restore(&message).await,
            _ => self.words.say(word).await,
        }
    }

    /// Sends the pods found on disk, if they are still needed.
    async fn restore(&mut self, why: &str) {
        let Some(checkpoint) = self.restorable.take() else {
            return;
        };
        let (pods, saved) = (checkpoint.pods.len(), checkpoint.saved);
        let path = self.file.path().display();
        tracing::info!(source = self.file.source(), pods, %path, %saved, "pods restored from a checkpoint: {why}");
        let message = format!("{why}; its pods are restored from the checkpoint {path} of {saved}");
        self.words.say(SourceUpdate::Snapshot(checkpoint.pods)).await;
        self.words.say(SourceUpdate::Unavailable { message }).await;
    }

    fn write(&mut self) -> Option<Writing> {
        let pods: Vec<_> = self.pods.as_ref()?.values().cloned().collect();
        self.dirty = false;
        let (file, saved) = (self.file.clone(), self.clock.now());
        Some(self.disk.run(move || file.save(&pods, saved)).boxed())
    }

    async fn wrote(&mut self, written: io::Result<()>) {
        self.next_write = Instant::now() + WRITE_INTERVAL;
        let Err(error) = written else {
            self.write_trouble = None;
            return;
        };
        self.dirty = true;
        let message = format!("the pods cannot be saved: {error}");
        if self.write_trouble.as_ref() != Some(&message) {
            self.write_trouble = Some(message.clone());
            let item = self.file.path().display().to_string();
            self.words.say(SourceUpdate::Problem { item, message }).await;
        }
    }
}

async fn on(writing: &mut Option<Writing>) -> io::Result<()> {
    match writing {
        Some(writing) => writing.await,
        None => future::pending().await,
    }
}
