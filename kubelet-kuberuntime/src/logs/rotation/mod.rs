//! Rotates the logs of running containers.

mod compress;

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use indexmap::IndexSet;
use k8s_openapi::jiff::civil::DateTime;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::{Clock, Disk, files};
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub(super) use self::compress::compress;
use super::files::{COMPRESSED, RotatedFiles, has_suffix, with_suffix};
use super::go_text;
use crate::Error;
use kubelet_cri::{RuntimeService, v1};

/// How logs are rotated; the defaults are the kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotatePolicy {
    /// `containerLogMaxSize`: the size in bytes at which a log is rotated; 10 MiB by default. `None`, for a negative
    /// number in the kubelet, means never.
    pub max_size: Option<u64>,
    /// `containerLogMaxFiles`: how many log files a container may have, including the current one; 5 by default, at
    /// least 2.
    pub max_files: usize,
    /// `containerLogMaxWorkers`: how many logs are rotated in parallel; 1 by default.
    pub max_workers: usize,
    /// `containerLogMonitorInterval`: how often sizes are checked; 10 s by default.
    pub monitor_interval: Duration,
}

impl Default for LogRotatePolicy {
    fn default() -> Self {
        Self {
            max_size: Some(10 * 1024 * 1024),
            max_files: 5,
            max_workers: 1,
            monitor_interval: Duration::from_secs(10),
        }
    }
}

/// Rotates the logs of running containers by size, compresses rotated files, and removes the oldest
/// (`containerLogManager`).
///
/// A log `0.log` that is too large is renamed to `0.log.20060102-150405`, and the runtime reopens `0.log`
/// (`ReopenContainerLog`). If that fails, the old name is restored. The next rotation compresses the file to
/// `0.log.20060102-150405.gz`: until then collectors can read it to its end. The logs of a container that has ended are
/// never rotated. They are removed with the container.
pub struct ContainerLogManager {
    runtime: Arc<dyn RuntimeService>,
    policy: LogRotatePolicy,
    clock: Clock,
    disk: Disk,
    /// The paths of the logs of running containers, by id. The log of a container keeps its path.
    paths: Mutex<HashMap<String, PathBuf>>,
}

impl ContainerLogManager {
    /// A manager for the logs of this runtime's containers.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPolicy`] if the policy is invalid.
    pub fn new(runtime: Arc<dyn RuntimeService>, policy: LogRotatePolicy) -> Result<Self, Error> {
        let problem = if policy.max_files <= 1 {
            Some(format!("invalid MaxFiles {}, must be > 1", policy.max_files))
        } else if policy.max_workers == 0 {
            Some("invalid MaxWorkers 0, must be > 0".to_owned())
        } else if policy.monitor_interval.is_zero() {
            Some("invalid MonitorInterval 0s, must be > 0".to_owned())
        } else {
            None
        };
        match problem {
            Some(message) => Err(Error::InvalidPolicy { message }),
            None => Ok(Self {
                runtime,
                policy,
                clock: Clock::system(),
                disk: Disk::default(),
                paths: Mutex::default(),
            }),
        }
    }

    /// The wall clock for the names of rotated files.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How file work is done, on another thread by default.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Rotates at once and then in each interval, until `shutdown`. A log that cannot be rotated is logged and tried
    /// again in the next interval. A slow rotation does not delay the others: its container is skipped until the
    /// rotation has ended.
    ///
    /// # Cancel safety
    ///
    /// After `shutdown` it completes unfinished rotations. If it is dropped during a rotation, the log may keep its new
    /// name until the runtime reopens it, which the next manager requests. No output is lost.
    pub async fn run(self, shutdown: CancellationToken) {
        if self.policy.max_size.is_none() {
            return shutdown.cancelled().await;
        }
        let mut ticks = interval(self.policy.monitor_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting: IndexSet<String> = IndexSet::new();
        let mut at_work: IndexSet<String> = IndexSet::new();
        let mut work = FuturesUnordered::new();
        let mut check = pin!(Fuse::terminated());
        loop {
            while work.len() < self.policy.max_workers
                && let Some(id) = waiting.shift_remove_index(0)
            {
                at_work.insert(id.clone());
                work.push(self.look_after(id));
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(done) = work.next() => {
                    at_work.swap_remove(&done);
                }
                checked = &mut check => match checked {
                    Ok(ids) => {
                        let ids: Vec<String> = ids;
                        waiting.extend(ids.into_iter().filter(|id| !at_work.contains(id)));
                    }
                    Err(error) => tracing::error!(%error, "cannot rotate container logs: failed to list containers"),
                },
                _ = ticks.tick() => if check.is_terminated() {
                    check.set(self.check().fuse());
                },
            }
        }
        while work.next().await.is_some() {}
    }

    /// The running containers whose log may have to be rotated. The runtime reports the path of each log once, and all sizes
    /// are read together: the kubelet asks the runtime for each container in each interval.
    async fn check(&self) -> Result<Vec<String>, Error> {
        let running = self.running().await?;
        let logs: Vec<(String, Option<PathBuf>)> = {
            let mut paths = self.paths.lock();
            *paths = running.iter().filter_map(|id| paths.remove_entry(id)).collect();
            let logs = running.into_iter().map(|id| (paths.get(&id).cloned(), id));
            logs.map(|(path, id)| (id, path)).collect()
        };
        let max = self.policy.max_size.unwrap_or(u64::MAX);
        // A log that is missing, or cannot be read, is the worker's affair.
        let is_small = move |log: &Path| fs::metadata(log).is_ok_and(|metadata| metadata.len() < max);
        let due = self.disk.run(move || {
            let due = logs
                .into_iter()
                .filter(|(_, log)| !log.as_deref().is_some_and(is_small));
            Ok(due.map(|(id, _)| id).collect())
        });
        let folder = Path::new("");
        due.await.map_err(|error| failed(folder, "stat", folder, &error))
    }

    /// A container that is not running writes no logs.
    async fn running(&self) -> Result<Vec<String>, Error> {
        let state = v1::ContainerState::ContainerRunning;
        let filter = v1::ContainerFilter {
            state: Some(v1::ContainerStateValue { state: state as i32 }),
            ..Default::default()
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let containers = self.runtime.list_containers(request).await?.containers;
        // A runtime may ignore the filter.
        let running = containers
            .into_iter()
            .filter(|container| container.state() == state);
        Ok(running.map(|container| container.id).collect())
    }

    /// Rotates one container's log if needed, and returns the container's id.
    async fn look_after(&self, id: String) -> String {
        if let Err(error) = self.rotate_if_large(&id).await {
            tracing::error!(container = id, %error, "cannot rotate a container's log");
        }
        id
    }

    /// `processContainer`
    async fn rotate_if_large(&self, id: &str) -> Result<(), Error> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let status = self
            .runtime
            .container_status(request)
            .await?
            .status
            .unwrap_or_default();
        if status.log_path.is_empty() {
            // This runtime writes its logs elsewhere.
            return Ok(());
        }
        let log = PathBuf::from(status.log_path);
        self.paths.lock().insert(id.to_owned(), log.clone());
        let mut size = self.size(&log).await;
        if size
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            self.reopen(id).await?;
            size = self.size(&log).await;
        }
        let size = size.map_err(|error| failed(&log, "stat", &log, &error))?;
        if self.policy.max_size.is_none_or(|max| size < max) {
            return Ok(());
        }
        let (path, max_files, disk) = (log.clone(), self.policy.max_files, self.disk);
        disk.run(move || Ok(tidy(&path, max_files)))
            .await
            .unwrap_or_else(|error| Err(failed(&log, "tidy", &log, &error)))?;
        self.rotate_latest(id, log).await
    }

    async fn size(&self, log: &Path) -> io::Result<u64> {
        let log = log.to_owned();
        self.disk.run(move || Ok(fs::metadata(log)?.len())).await
    }

    async fn reopen(&self, id: &str) -> Result<(), Error> {
        let request = v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        self.runtime.reopen_container_log(request).await?;
        Ok(())
    }

    /// Renames the log and lets the runtime create a new one. It is not compressed yet: the runtime may still write to
    /// it, and collectors may read it (`rotateLatestLog`).
    async fn rotate_latest(&self, id: &str, log: PathBuf) -> Result<(), Error> {
        let (from, now) = (log.clone(), self.clock.now());
        let renamed = self.disk.run(move || {
            let rotated = next_name(&from, now)?;
            fs::rename(&from, &rotated)?;
            Ok(rotated)
        });
        let rotated = renamed
            .await
            .map_err(|error| failed(&log, "rotate", &log, &error))?;
        let Err(error) = self.reopen(id).await else {
            return Ok(());
        };
        // Restores the name, so that the next interval can try again. If the runtime has created a new log
        // nevertheless, this keeps both.
        let to = log.clone();
        let back = self.disk.run(move || match to.try_exists() {
            Ok(true) => Ok(()),
            _ => fs::rename(rotated, to),
        });
        if let Err(error) = back.await {
            tracing::error!(container = id, log = %log.display(), %error, "cannot restore the name of a rotated log");
        }
        Err(error)
    }
}

/// Removes the leftovers of an unfinished rotation and the oldest files, and compresses the rest (`rotateLog`).
fn tidy(log: &Path, max_files: usize) -> Result<(), Error> {
    let files = RotatedFiles::of(log).map_err(|error| failed(log, "list all log files of", log, &error))?;
    for unused in &files.unused {
        remove(log, "remove unused log", unused)?;
    }
    // The log itself becomes one more rotated file, and a new log is created.
    let excess = files.in_use.len().saturating_sub(max_files.saturating_sub(2));
    let (old, kept) = files.in_use.split_at(excess);
    for old in old {
        remove(log, "remove old log", old)?;
    }
    for plain in kept.iter().filter(|path| !has_suffix(path, COMPRESSED)) {
        compress(plain).map_err(|error| failed(log, "compress log", plain, &error))?;
    }
    Ok(())
}

fn remove(log: &Path, what: &str, path: &Path) -> Result<(), Error> {
    files::remove(path).map_err(|error| failed(log, what, path, &error))
}

/// `<log>.<time>`, with the time of the next second after the newest rotated file, if the clock is behind it. So names sort in
/// the order of the rotations, and no file is overwritten.
fn next_name(log: &Path, now: Timestamp) -> io::Result<PathBuf> {
    const FORMAT: &str = "%Y%m%d-%H%M%S";
    let second_after = |newest: &PathBuf| {
        let name = newest.to_str()?;
        let name = name.strip_suffix(COMPRESSED).unwrap_or(name);
        let (_, time) = name.rsplit_once('.')?;
        let time = DateTime::strptime(FORMAT, time)
            .ok()?
            .to_zoned(TimeZone::UTC)
            .ok()?;
        time.timestamp().checked_add(SignedDuration::from_secs(1)).ok()
    };
    let earliest = RotatedFiles::of(log)?.in_use.last().and_then(second_after);
    let time = earliest.map_or(now, |earliest| earliest.max(now));
    Ok(with_suffix(log, &format!(".{}", time.strftime(FORMAT))))
}

fn failed(log: &Path, what: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("failed to {what} {path:?}: {}", go_text(error));
    Error::Log {
        path: log.display().to_string(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_in_the_order_of_rotations() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        let name = |time: &str| {
            let name = next_name(&log, time.parse().unwrap()).unwrap();
            fs::write(&name, "").unwrap();
            name.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(name("2024-01-01T00:00:00Z"), "0.log.20240101-000000");
        compress(&dir.path().join("0.log.20240101-000000")).unwrap();
        assert_eq!(name("2024-01-01T00:00:00.9Z"), "0.log.20240101-000001");
        assert_eq!(name("2024-01-01T00:00:10Z"), "0.log.20240101-000010");
        // The clock goes back, and the oldest files are removed.
        fs::remove_file(dir.path().join("0.log.20240101-000000.gz")).unwrap();
        assert_eq!(name("2023-12-31T00:00:00Z"), "0.log.20240101-000011");
        assert_eq!(name("2024-01-01T00:00:00Z"), "0.log.20240101-000012");
        fs::write(dir.path().join("0.log.unknown"), "").unwrap();
        assert_eq!(name("2024-01-02T00:00:00Z"), "0.log.20240102-000000");
    }
}
