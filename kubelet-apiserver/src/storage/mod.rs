//! [`Storage`]: where a server keeps its objects over a restart.

#[cfg(feature = "storage")]
mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Disk;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use super::error::Error;
use super::request::{Attributes, User};
use super::resource::Resource;
use super::server::{ApiServer, Shared};
use super::status_error::StatusError;
use super::store::Batch;
use super::write::name_of;

#[cfg(feature = "storage")]
pub use file::FileStorage;

/// The wait after a failed write, before the same changes are written again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a request waits until its change is in the storage.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many objects an error names.
const NAMED: usize = 10;
/// How often old events are removed.
const SWEEP: Duration = Duration::from_secs(60);

/// Keeps the entries of a server: a name and some bytes each. In kube-apiserver this is etcd.
///
/// [`ApiServerBuilder::open`](super::ApiServerBuilder::open) reads it once. [`ApiServer::run`] writes to it, one batch of changes at a time. All
/// methods may block.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Reads all entries, in any order.
    ///
    /// # Errors
    ///
    /// The entries cannot be read.
    fn load(&self) -> Result<Vec<(String, Vec<u8>)>, BoxError>;

    /// Writes entries, and removes those without a value: all of them or none. When this returns, they survive a crash of the
    /// machine.
    ///
    /// # Errors
    ///
    /// Nothing was written. The server keeps the changes and tries again.
    fn write(&self, entries: &BTreeMap<String, Option<Vec<u8>>>) -> Result<(), BoxError>;
}

/// A server's storage, and how far it is.
#[derive(Debug)]
pub(crate) struct Kept {
    storage: Arc<dyn Storage>,
    /// The revision up to which the storage has all changes.
    written: watch::Sender<u64>,
    /// What is being written. It stays here if [`ApiServer::run`] is dropped, and the next one writes it again.
    open: Mutex<Option<Arc<Batch>>>,
    /// Held by the thread that writes.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Wakes [`ApiServer::run`].
    changed: Notify,
    /// How long events are kept.
    event_ttl: Duration,
}

impl Kept {
    pub(crate) fn new(storage: Arc<dyn Storage>, revision: u64, event_ttl: Duration) -> Self {
        Self {
            storage,
            written: watch::Sender::new(revision),
            open: Mutex::default(),
            turn: Arc::default(),
            changed: Notify::new(),
            event_ttl,
        }
    }

    /// Writes a batch. Tries until it succeeds, and after `shutdown` once more.
    ///
    /// # Errors
    ///
    /// The last try failed.
    async fn write(&self, batch: &Arc<Batch>, shutdown: &CancellationToken) -> io::Result<()> {
        let mut failures = 0;
        loop {
            let is_last = shutdown.is_cancelled();
            let turn = self.turn.clone().lock_owned().await;
            let (storage, batch) = (self.storage.clone(), batch.clone());
            let write = move || {
                let _turn = turn;
                storage.write(&batch.entries()).map_err(io::Error::other)
            };
            let Err(error) = Disk::default().run(write).await else {
                return Ok(());
            };
            failures += 1;
            tracing::error!(%error, failures, "cannot write to the storage");
            if is_last {
                return Err(error);
            }
            tokio::select! {
                () = sleep(RETRY) => {}
                () = shutdown.cancelled() => {}
            }
        }
    }

    /// Wakes the writer, because there are changes.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }
}

impl Shared {
    /// Waits until all changes so far are in the storage. Without a storage it returns at once.
    ///
    /// # Errors
    ///
    /// 504 if this takes too long. The changes may be written later.
    pub(crate) async fn until_written(&self) -> Result<(), StatusError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (revision, mut written) = (self.revision(), kept.written.subscribe());
        match timeout(PATIENCE, written.wait_for(|written| *written >= revision)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(StatusError::new(
                504,
                "Timeout",
                "Timeout: the storage did not take the changes in time",
            )),
        }
    }

    /// Writes all changes that wait. Tries until it succeeds, and after `shutdown` once more.
    async fn write(&self, kept: &Kept, shutdown: &CancellationToken) -> Result<(), Error> {
        loop {
            let batch = {
                let mut open = kept.open.lock();
                if open.is_none() {
                    *open = self.with_store(|store| store.take_batch()).map(Arc::new);
                }
                open.clone()
            };
            let Some(batch) = batch else { return Ok(()) };
            let failed = |source: io::Error| {
                let mut names = batch.names();
                names.extend(self.with_store(|store| store.waiting_names()));
                not_written(&names, source)
            };
            kept.write(&batch, shutdown).await.map_err(failed)?;
            self.with_store(|store| store.written(&batch));
            kept.written.send_replace(batch.revision);
            *kept.open.lock() = None;
        }
    }

    /// Removes the events that have not changed for so long (`--event-ttl`).
    fn remove_old_events(&self, ttl: Duration) {
        let Some(events) = Resource::find("", "v1", "events") else {
            return;
        };
        let Some(oldest) = self.now().checked_sub(ttl).ok() else {
            return;
        };
        for event in self.with_store(|store| store.objects(events, "")) {
            let times = [
                &event["lastTimestamp"],
                &event["eventTime"],
                &event["series"]["lastObservedTime"],
                &event["metadata"]["creationTimestamp"],
            ];
            let times = times.into_iter().filter_map(Value::as_str);
            let newest = times.filter_map(|time| time.parse::<Timestamp>().ok()).max();
            if newest.is_none_or(|newest| newest > oldest) {
                continue;
            }
            let attributes = Attributes {
                user: User::admin(),
                verb: "delete",
                resource: events,
                subresource: "",
                namespace: event["metadata"]["namespace"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                name: name_of(&event).to_owned(),
                field_selector: String::new(),
                field_manager: "kubelet-apiserver".into(),
                dry_run: false,
                now: self.now(),
            };
            // One that is gone already is no error.
            let _ = self.delete(&attributes, &json!({}));
        }
    }
}

impl ApiServer {
    /// Writes changes to the storage until `shutdown`, and removes old events. A server that was
    /// [opened](super::ApiServerBuilder::open) needs this: requests that write or show a change get their response, and watchers
    /// get the change, once it is in the storage.
    ///
    /// Changes that come while the disk is busy are written together. If a write fails, this logs it and tries again every second.
    /// After `shutdown` it writes what is left, with one try. End it after the clients of the server. Without a storage it only
    /// waits for `shutdown`.
    ///
    /// # Errors
    ///
    /// [`Error::Storage`]: the last changes could not be written. The error names their objects. The server still has the
    /// changes, and you may call this again.
    ///
    /// # Cancel safety
    ///
    /// You may drop it and call it again. Until then, requests that write or show changes wait.
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), Error> {
        let Some(kept) = &self.shared.kept else {
            shutdown.cancelled().await;
            return Ok(());
        };
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.shared.write(kept, &shutdown).await?;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = kept.changed.notified() => {}
                _ = sweep.tick() => self.shared.remove_old_events(kept.event_ttl),
            }
        }
        let from = Instant::now();
        self.shared.write(kept, &shutdown).await?;
        tracing::debug!(took = ?from.elapsed(), "all changes are in the storage");
        Ok(())
    }
}

/// The error for changes that are in memory only.
fn not_written(names: &BTreeSet<String>, source: io::Error) -> Error {
    let mut named: Vec<&str> = names.iter().map(String::as_str).take(NAMED).collect();
    let more = format!("and {} more", names.len().saturating_sub(NAMED));
    if names.len() > NAMED {
        named.push(&more);
    }
    Error::Storage {
        what: format!("does not have the last changes of {}", named.join(", ")),
        source: source.into(),
    }
}
