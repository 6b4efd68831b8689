//! The file systems of a host.

mod mounts;
mod probe;
mod stat;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use kubelet_core::Clock;
use parking_lot::RwLock;

use self::mounts::{Mount, disk_stats, mounts};
use self::probe::Probes;
pub use self::stat::{HostStatFs, StatFs, StatFsResult};
use super::{FileSystems, FileUsage};
use crate::reading::{FileSystem, FileSystemKind};
use crate::{Error, Result};

/// How long a file system may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The file systems of a host, from `/proc/self/mountinfo` and `statvfs`.
///
/// The table of mounts is read at the start, as cAdvisor does, and again when a file system is not in it. Each question to a
/// file system is bounded in time. While one has not returned, no other is started for the same path.
pub struct HostFileSystems {
    proc: PathBuf,
    excluded: Vec<PathBuf>,
    stat: Arc<dyn StatFs>,
    clock: Clock,
    mounts: RwLock<Arc<[Mount]>>,
    probes: Probes,
    timeout: Duration,
}

impl HostFileSystems {
    /// The file systems that are mounted according to `proc`, usually `/proc`. Those below `excluded` are left out: mounts
    /// of containers, which the kubelet shows after a restart.
    pub fn new(
        proc: impl Into<PathBuf>,
        excluded: Vec<PathBuf>,
        stat: Arc<dyn StatFs>,
        clock: Clock,
    ) -> Self {
        let file_systems = Self {
            proc: proc.into(),
            excluded,
            stat,
            clock,
            mounts: RwLock::new(Arc::default()),
            probes: Probes::default(),
            timeout: TIMEOUT,
        };
        file_systems.read_mounts();
        file_systems
    }

    /// How long a file system may take to answer; 2 s by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn read_mounts(&self) {
        let text = std::fs::read_to_string(self.proc.join("self/mountinfo")).unwrap_or_default();
        let mut mounts = mounts(&text);
        mounts.retain(|mount| {
            !self
                .excluded
                .iter()
                .any(|prefix| mount.mountpoint.starts_with(prefix))
        });
        *self.mounts.write() = mounts.into();
    }

    fn all_mounts(&self) -> Arc<[Mount]> {
        self.mounts.read().clone()
    }

    async fn stat(&self, path: &Path) -> Result<StatFsResult> {
        let stat = self.stat.clone();
        let asked = path.to_owned();
        let answer = self
            .probes
            .ask(path, self.timeout, move || stat.stat(&asked))
            .await;
        match answer {
            None => Err(Error::FileSystemHangs {
                path: path.to_owned(),
                after: self.timeout,
            }),
            Some(result) => result.map_err(|error| Error::read(path, error)),
        }
    }

    /// The mount of a device number, or else the closest mountpoint above the path (`GetDirFsDevice`).
    fn mount_of(&self, path: &Path, number: (u64, u64)) -> Option<Mount> {
        let mounts = self.all_mounts();
        let by_number = mounts.iter().find(|mount| (mount.major, mount.minor) == number);
        let found = by_number.or_else(|| {
            let above = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
            above
                .max_by_key(|mount| mount.mountpoint.as_os_str().len())
                .filter(|mount| mount.device.starts_with("/dev/"))
        });
        found.cloned()
    }

    fn file_system(
        &self,
        mount: &Mount,
        stat: StatFsResult,
        io: &HashMap<(u64, u64), crate::reading::IoCounters>,
    ) -> FileSystem {
        FileSystem {
            timestamp: self.clock.now(),
            device: mount.device.clone(),
            mountpoint: mount.mountpoint.to_string_lossy().into_owned(),
            kind: if mount.kind == "zfs" {
                FileSystemKind::Zfs
            } else {
                FileSystemKind::Vfs
            },
            capacity: stat.capacity,
            free: stat.free,
            available: stat.available,
            inodes: Some(stat.inodes),
            inodes_free: Some(stat.inodes_free),
            major: mount.major,
            minor: mount.minor,
            io: io.get(&(mount.major, mount.minor)).copied().unwrap_or_default(),
        }
    }
}

#[async_trait]
impl FileSystems for HostFileSystems {
    async fn of_path(&self, path: &Path) -> Result<FileSystem> {
        let stat = self.stat(path).await?;
        let number = (stat.major, stat.minor);
        let mount = self.mount_of(path, number).or_else(|| {
            self.read_mounts();
            self.mount_of(path, number)
        });
        let mount = mount.ok_or_else(|| Error::NoFileSystem {
            path: path.to_owned(),
        })?;
        Ok(self.file_system(&mount, stat, &HashMap::new()))
    }

    async fn all(&self) -> Arc<[FileSystem]> {
        let mounts = self.all_mounts();
        let io = disk_stats(&std::fs::read_to_string(self.proc.join("diskstats")).unwrap_or_default());
        let ask = mounts.iter().map(|mount| async {
            match self.stat(&mount.mountpoint).await {
                Ok(stat) => Some(self.file_system(mount, stat, &io)),
                Err(error) => {
                    tracing::debug!(%error, "leave out a file system");
                    None
                }
            }
        });
        join_all(ask).await.into_iter().flatten().collect()
    }

    async fn files(&self, paths: Vec<PathBuf>) -> Vec<Option<FileUsage>> {
        let count = paths.len();
        let Some(key) = paths.first().cloned() else {
            return Vec::new();
        };
        let stat = self.stat.clone();
        let measure = move || Ok(paths.iter().map(|path| stat.files(path)).collect());
        let answer = self.probes.ask_files(&key, self.timeout, measure).await;
        answer.and_then(Result::ok).unwrap_or_else(|| vec![None; count])
    }
}
