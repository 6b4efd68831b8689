//! The collector: reads all cgroups when somebody asks, and keeps the last snapshot.

mod collect;
mod config;
mod containers;
mod rates;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::collect::DEFAULT_AGE;
pub use self::config::CollectorConfig;
use self::containers::Containers;
use self::rates::Rates;
use crate::reading::{Machine, Reading, Snapshot, SystemVersion};
use crate::source::{Detail, FileSystems};
use crate::{Error, Result};

/// How long the machine is not read again (`update_machine_info_interval`).
const MACHINE_AGE: Duration = Duration::from_secs(5 * 60);
/// A reading that could not be renewed is shown for this long (`statsCacheDuration`).
const KEEP: Duration = Duration::from_secs(120);

/// Reads all cgroups when somebody asks, and keeps the last snapshot (cAdvisor's `manager`). Cheap to clone.
///
/// cAdvisor has a thread for each cgroup that reads it every 10 to 15 s. This reads on demand: whoever accepts a snapshot of
/// some age receives the last one if it is young enough. Callers at the same time share one reading. Between calls nothing
/// runs, and of earlier readings only the CPU time is kept that rates need.
#[derive(Clone)]
pub struct Collector {
    inner: Arc<Inner>,
}

struct Inner {
    config: CollectorConfig,
    /// Held while a snapshot is read. The others wait, and then find a young one.
    round: tokio::sync::Mutex<()>,
    /// So many callers wait for a snapshot with all details.
    all_wanted: AtomicUsize,
    latest: Mutex<Latest>,
    /// When the CPU times of all cgroups were last read without a snapshot.
    cpu_times: Mutex<Option<Instant>>,
    machine: tokio::sync::Mutex<Option<KnownMachine>>,
    containers: Containers,
    rates: Arc<Mutex<Rates>>,
}

/// The last snapshots, and when their reading began.
#[derive(Default)]
struct Latest {
    /// With [`Detail::All`].
    all: Option<(Instant, Arc<Snapshot>)>,
    /// With [`Detail::Summary`], if it is newer than `all`.
    summary: Option<(Instant, Arc<Snapshot>)>,
}

impl Latest {
    /// The newest snapshot with at least this detail.
    fn newest(&self, detail: Detail) -> Option<&(Instant, Arc<Snapshot>)> {
        let summary = self.summary.as_ref().filter(|_| detail == Detail::Summary);
        summary.or(self.all.as_ref())
    }

    fn set(&mut self, started: Instant, snapshot: Arc<Snapshot>) {
        let new = Some((started, snapshot.clone()));
        match snapshot.detail {
            Detail::All => (self.all, self.summary) = (new, None),
            Detail::Summary => {
                self.summary = new;
                // Nobody asks for it any more, and it is too old to stand for what cannot be read.
                self.all.take_if(|(before, _)| started - *before >= KEEP);
            }
        }
    }
}

/// Counts a caller while it waits.
struct WaitsForAll<'a>(&'a AtomicUsize);

impl<'a> WaitsForAll<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for WaitsForAll<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The machine as it was read.
struct KnownMachine {
    read: Instant,
    machine: Arc<Machine>,
    version: Arc<SystemVersion>,
}

impl Collector {
    /// A collector. It reads nothing until it is asked.
    pub fn new(config: CollectorConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                config,
                round: tokio::sync::Mutex::default(),
                all_wanted: AtomicUsize::new(0),
                latest: Mutex::default(),
                cpu_times: Mutex::default(),
                machine: tokio::sync::Mutex::default(),
                containers: Containers::default(),
                rates: Arc::default(),
            }),
        }
    }

    /// All readings, at most `max_age` old, with all details. `Duration::ZERO`: read after this call began, perhaps for another
    /// caller.
    ///
    /// # Errors
    ///
    /// If the root cgroup or the machine cannot be read. A fault of another cgroup only makes the snapshot
    /// [incomplete](Snapshot::incomplete).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn snapshot(&self, max_age: Duration) -> Result<Arc<Snapshot>> {
        self.snapshot_with(Detail::All, max_age).await
    }

    /// As [`snapshot`](Self::snapshot), with at least this detail.
    ///
    /// # Errors
    ///
    /// As for [`snapshot`](Self::snapshot).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn snapshot_with(&self, detail: Detail, max_age: Duration) -> Result<Arc<Snapshot>> {
        let asked = Instant::now();
        if let Some(snapshot) = self.young(detail, asked, max_age) {
            return Ok(snapshot);
        }
        let waits = (detail == Detail::All).then(|| WaitsForAll::new(&self.inner.all_wanted));
        let _round = self.inner.round.lock().await;
        drop(waits);
        if let Some(snapshot) = self.young(detail, asked, max_age) {
            return Ok(snapshot);
        }
        let started = Instant::now();
        let snapshot = Arc::new(self.collect(detail).await?);
        self.inner.latest.lock().set(started, snapshot.clone());
        Ok(snapshot)
    }

    /// Reads the CPU time of all cgroups, unless that was done at most `max_age` ago. So the next snapshot has
    /// [rates](Reading::cpu_rate), at a small part of the cost of a snapshot.
    ///
    /// # Errors
    ///
    /// If the cgroups cannot be listed. A cgroup that cannot be read is logged.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn keep_rates(&self, max_age: Duration) -> Result<()> {
        let is_young = |read: Option<Instant>| read.is_some_and(|read| read.elapsed() <= max_age);
        let snapshot = || Some(self.inner.latest.lock().newest(Detail::Summary)?.0);
        let _round = self.inner.round.lock().await;
        if is_young(snapshot()) || is_young(*self.inner.cpu_times.lock()) {
            return Ok(());
        }
        let started = Instant::now();
        self.collect_cpu_times().await?;
        *self.inner.cpu_times.lock() = Some(started);
        Ok(())
    }

    /// The reading of one cgroup, at most `max_age` old, with all details. It reads only this cgroup, if necessary.
    ///
    /// # Errors
    ///
    /// If there is no such cgroup, or it cannot be read.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn cgroup(&self, name: &str, max_age: Duration) -> Result<Arc<Reading>> {
        self.cgroup_with(Detail::All, name, max_age).await
    }

    /// As [`cgroup`](Self::cgroup), with at least this detail.
    ///
    /// # Errors
    ///
    /// As for [`cgroup`](Self::cgroup).
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn cgroup_with(&self, detail: Detail, name: &str, max_age: Duration) -> Result<Arc<Reading>> {
        if let Some(snapshot) = self.young(detail, Instant::now(), max_age) {
            let gone = || Error::NoCgroup {
                name: name.to_owned(),
            };
            return snapshot.cgroup(name).cloned().ok_or_else(gone);
        }
        self.collect_one(detail, name).await
    }

    /// The machine. It is read again after 5 minutes.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn machine(&self) -> Result<(Arc<Machine>, Arc<SystemVersion>)> {
        let mut known = self.inner.machine.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.read.elapsed() < MACHINE_AGE) {
            return Ok((known.machine.clone(), known.version.clone()));
        }
        let source = self.inner.config.machine.clone();
        let read = move || Ok((source.machine(), source.version()));
        let read = self.inner.config.disk.run(read).await;
        let (machine, version) = read.map_err(|error| Error::read("/proc", error))?;
        let (machine, version) = (Arc::new(machine?), Arc::new(version));
        *known = Some(KnownMachine {
            read: Instant::now(),
            machine: machine.clone(),
            version: version.clone(),
        });
        Ok((machine, version))
    }

    /// The file systems.
    pub fn file_systems(&self) -> &Arc<dyn FileSystems> {
        &self.inner.config.file_systems
    }

    /// What it reads.
    pub fn config(&self) -> &CollectorConfig {
        &self.inner.config
    }

    /// The last snapshot with at least this detail.
    fn last(&self, detail: Detail) -> Option<Arc<Snapshot>> {
        let latest = self.inner.latest.lock();
        latest.newest(detail).map(|(_, snapshot)| snapshot.clone())
    }

    /// The last snapshot with this detail, if it was read at most `max_age` before `asked`.
    fn young(&self, detail: Detail, asked: Instant, max_age: Duration) -> Option<Arc<Snapshot>> {
        let latest = self.inner.latest.lock();
        let (started, snapshot) = latest.newest(detail)?;
        (asked.saturating_duration_since(*started) <= max_age && (!max_age.is_zero() || *started >= asked))
            .then(|| snapshot.clone())
    }
}
