//! The file systems of a host.

mod mounts;
mod places;
mod probe;
mod stat;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::Clock;
use parking_lot::RwLock;

use self::mounts::{Mount, disk_stats, mounts};
use self::probe::{Kind, Probes};
pub use self::stat::{HostStatFs, StatFs, StatFsResult};
use super::{FileSystems, FileUsage};
use crate::reading::{FileSystem, FileSystemKind};
use crate::{Error, Result};

/// How long a file system may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The file systems of a host, from `/proc/self/mountinfo` and `statvfs`.
///
/// The table of mounts is read at the start, as cAdvisor does, and again when a file system is not in it. Each question to a
/// file system is bounded in time, and so is each call. While one has not returned, no path on the same mount is asked.
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
        let proc = proc.into();
        let file_systems = Self {
            probes: Probes::new(proc.clone()),
            proc,
            excluded,
            stat,
            clock,
            mounts: RwLock::new(Arc::default()),
            timeout: TIMEOUT,
        };
        file_systems.read_mounts();
        file_systems
    }

    /// How long a file system may take to answer; 2 s by default. A call about many takes at most three times as long.
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

    /// What each file system reports, in the order of the paths.
    async fn stat_all(&self, paths: Vec<PathBuf>) -> Vec<Option<io::Result<StatFsResult>>> {
        let stat = self.stat.clone();
        self.probes
            .ask(Kind::Size, paths, self.timeout, move |path| stat.stat(path))
            .await
    }

    async fn stat(&self, path: &Path) -> Result<StatFsResult> {
        match self.stat_all(vec![path.to_owned()]).await.pop().flatten() {
            Some(answer) => answer.map_err(|error| Error::read(path, error)),
            None => Err(Error::FileSystemHangs {
                path: path.to_owned(),
                after: self.timeout,
            }),
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
        let is_zfs = mount.kind == "zfs";
        let (major, minor) = match mount.has_other_number() {
            true => (stat.major, stat.minor),
            false => (mount.major, mount.minor),
        };
        FileSystem {
            timestamp: self.clock.now(),
            device: mount.device.clone(),
            mountpoint: mount.mountpoint.to_string_lossy().into_owned(),
            kind: if is_zfs {
                FileSystemKind::Zfs
            } else {
                FileSystemKind::Vfs
            },
            capacity: stat.capacity,
            free: stat.free,
            available: stat.available,
            // ZFS has no fixed number of inodes, and cAdvisor shows none.
            inodes: (!is_zfs).then_some(stat.inodes),
            inodes_free: (!is_zfs).then_some(stat.inodes_free),
            major,
            minor,
            io: io.get(&(major, minor)).copied().unwrap_or_default(),
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
        // Of the mounts of one NFS file system, one is asked for all.
        let same = |a: &Mount, b: &Mount| {
            a == b || (a.is_nfs() && b.is_nfs() && (a.major, a.minor) == (b.major, b.minor))
        };
        let mut asked: Vec<&Mount> = Vec::new();
        for mount in mounts.iter() {
            if !asked.iter().any(|known| same(known, mount)) {
                asked.push(mount);
            }
        }
        let paths = asked.iter().map(|mount| mount.mountpoint.clone()).collect();
        let answers = self.stat_all(paths).await;
        let mut answered: Vec<(&Mount, StatFsResult)> = Vec::new();
        for (mount, answer) in asked.into_iter().zip(answers) {
            match answer {
                Some(Ok(stat)) => answered.push((mount, stat)),
                Some(Err(error)) => {
                    tracing::debug!(%error, path = %mount.mountpoint.display(), "leave out a file system");
                }
                None => {}
            }
        }
        let of_mount = |mount: &Mount| {
            let (_, stat) = answered.iter().find(|(known, _)| same(known, mount))?;
            Some(self.file_system(mount, *stat, &io))
        };
        mounts.iter().filter_map(of_mount).collect()
    }

    async fn files(&self, paths: Vec<PathBuf>) -> Vec<Option<FileUsage>> {
        let stat = self.stat.clone();
        let answers = self
            .probes
            .ask(Kind::Files, paths, self.timeout, move |path| stat.files(path))
            .await;
        answers.into_iter().map(Option::flatten).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl StatFs for Fixed {
        fn stat(&self, path: &Path) -> io::Result<StatFsResult> {
            let minor = if path.starts_with("/btrfs") { 46 } else { 50 };
            Ok(StatFsResult {
                minor,
                inodes: 10,
                inodes_free: 5,
                ..Default::default()
            })
        }
    }

    #[tokio::test]
    async fn btrfs_and_zfs() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir(proc.path().join("self")).unwrap();
        let table = "1 0 0:45 / /btrfs rw - btrfs /dev/vdb rw\n2 1 0:50 / /tank rw - zfs tank rw\n3 1 0:51 / /n rw - nfs4 s:/x rw\n\
             4 1 0:51 /y /o rw - nfs4 s:/x/y rw\n";
        std::fs::write(proc.path().join("self/mountinfo"), table).unwrap();
        let host = HostFileSystems::new(proc.path(), Vec::new(), Arc::new(Fixed), Clock::system());
        let all = host.all().await;
        let of = |device: &str| all.iter().find(|fs| fs.device == device).unwrap();
        assert_eq!((of("/dev/vdb").minor, of("/dev/vdb").inodes), (46, Some(10)));
        assert_eq!(
            (of("tank").minor, of("tank").inodes, of("tank").inodes_free),
            (50, None, None)
        );
        assert_eq!(of("s:/x/y").mountpoint, "/o");
        assert_eq!(
            host.of_path(Path::new("/btrfs/x")).await.unwrap().device,
            "/dev/vdb"
        );
    }
}
