//! Keeps the logs of running containers small.

mod compress;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use indexmap::IndexSet;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::{Clock, Disk};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::compress::compress;
use super::files::{COMPRESSED, RotatedFiles, has_suffix, with_suffix};
use super::go_text;
use crate::Error;
use kubelet_cri::{RuntimeService, v1};

/// How logs are rotated; by default as the kubelet does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotatePolicy {
    /// A log is rotated when it has so many bytes: `containerLogMaxSize`, 10 MiB. `None`, for the kubelet's negative
    /// numbers: never.
    pub max_size: Option<u64>,
    /// So many files a container may have, the one that is written included: `containerLogMaxFiles`, 5; at least 2.
    pub max_files: usize,
    /// So many logs are rotated at once: `containerLogMaxWorkers`, 1.
    pub max_workers: usize,
    /// How often sizes are looked at: `containerLogMonitorInterval`, 10 s.
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

/// Rotates the logs of running containers by size, compresses what was rotated, and removes the oldest
/// (`containerLogManager`).
///
/// A log `0.log` that is too large becomes `0.log.20060102-150405`, and the runtime is asked to open `0.log` anew
/// (`ReopenContainerLog`); where it cannot, the name is given back. With the next rotation the file is compressed to
/// `0.log.20060102-150405.gz`: until then collectors can read it to its end. What a container left that runs no more is
/// never rotated. Logs go with their containers.
pub struct ContainerLogManager {
    runtime: Arc<dyn RuntimeService>,
    policy: LogRotatePolicy,
    clock: Clock,
    disk: Disk,
}

impl ContainerLogManager {
    /// Rotates the logs of this runtime's containers.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPolicy`] names what is wrong with the policy.
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
            }),
        }
    }

    /// The wall clock that names of rotated files are taken from.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Who works on files, another thread by default.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Rotates at once and then with each interval, until it is told to stop. What cannot be rotated is logged, and
    /// tried again with the next interval. A container whose turn takes long holds up no interval: it is passed over until
    /// it is through.
    ///
    /// # Cancel safety
    ///
    /// When told to stop it ends what is under way. Dropped in the middle of a rotation it may leave the log under its
    /// new name until the runtime opens it anew, which the next manager has it do; nothing is lost.
    pub async fn run(self, shutdown: CancellationToken) {
        if self.policy.max_size.is_none() {
            return shutdown.cancelled().await;
        }
        let mut ticks = interval(self.policy.monitor_interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting: IndexSet<String> = IndexSet::new();
        let mut at_work: IndexSet<String> = IndexSet::new();
        let mut work = FuturesUnordered::new();
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
                _ = ticks.tick() => match self.running().await {
                    Ok(ids) => waiting.extend(ids.into_iter().filter(|id| !at_work.contains(id))),
                    Err(error) => tracing::error!(%error, "cannot rotate container logs: failed to list containers"),
                },
            }
        }
        while work.next().await.is_some() {}
    }

    /// What does not run writes no more.
    async fn running(&self) -> Result<Vec<String>, Error> {
        let state = v1::ContainerState::ContainerRunning;
        let filter = v1::ContainerFilter {
            state: Some(v1::ContainerStateValue { state: state as i32 }),
            ..Default::default()
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let containers = self.runtime.list_containers(request).await?.containers;
        // A runtime may not heed the filter.
        let running = containers
            .into_iter()
            .filter(|container| container.state() == state);
        Ok(running.map(|container| container.id).collect())
    }

    /// Looks after one container's log, and gives its id back.
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
            // A runtime that keeps its logs elsewhere.
            return Ok(());
        }
        let log = PathBuf::from(status.log_path);
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

    /// Gives the log a new name and has the runtime make a new one. It is not compressed yet: the runtime may still write
    /// to it, and collectors read it (`rotateLatestLog`).
    async fn rotate_latest(&self, id: &str, log: PathBuf) -> Result<(), Error> {
        let (from, now) = (log.clone(), self.clock.now());
        let renamed = self.disk.run(move || {
            let rotated = free_name(&from, now);
            fs::rename(&from, &rotated)?;
            Ok(rotated)
        });
        let rotated = renamed
            .await
            .map_err(|error| failed(&log, "rotate", &log, &error))?;
        let Err(error) = self.reopen(id).await else {
            return Ok(());
        };
        // The name is given back, so that it can be tried again. Where the runtime has made a new log all the same, this
        // keeps both.
        let to = log.clone();
        let back = self.disk.run(move || match to.try_exists() {
            Ok(true) => Ok(()),
            _ => fs::rename(rotated, to),
        });
        if let Err(error) = back.await {
            tracing::error!(container = id, log = %log.display(), %error, "cannot give a rotated log its name back");
        }
        Err(error)
    }
}

/// Removes what an unfinished rotation left and what is too old, and compresses the rest (`rotateLog`).
fn tidy(log: &Path, max_files: usize) -> Result<(), Error> {
    let files = RotatedFiles::of(log).map_err(|error| failed(log, "list all log files of", log, &error))?;
    for unused in &files.unused {
        remove(log, "remove unused log", unused)?;
    }
    // The log itself is about to become one more, and a new one is made.
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
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(log, what, path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// `<log>.<time>`; where that is taken, the next second's, so that no file is overwritten.
fn free_name(log: &Path, now: Timestamp) -> PathBuf {
    let mut time = now;
    loop {
        let name = with_suffix(log, &format!(".{}", time.strftime("%Y%m%d-%H%M%S")));
        let taken = [&name, &with_suffix(&name, COMPRESSED)]
            .into_iter()
            .any(|path| path.exists());
        match time.checked_add(SignedDuration::from_secs(1)) {
            Ok(next) if taken => time = next,
            _ => return name,
        }
    }
}

fn failed(log: &Path, what: &str, path: &Path, error: &io::Error) -> Error {
    let message = format!("failed to {what} {path:?}: {}", go_text(error));
    Error::Log {
        path: log.display().to_string(),
        message,
    }
}
