//! Mounts in memory.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_volume::{Error, MountPoint, Mounter, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

/// How long a slow call takes.
const SLOW: Duration = Duration::from_secs(3);
/// How many kinds of faults there are.
const KINDS: f64 = 6.0;

/// A mount table in memory, for volumes without root. Clones share it.
///
/// Nothing is mounted on the host: what is written to a mounted folder lies in the folder. When a tmpfs is unmounted, the
/// files in its folder are deleted.
///
/// With a [rate of faults](Self::set_fault_rate), calls fail before or after their work, are slow, lose their answer, or hang
/// until the faults [end](Self::end_faults).
///
/// ```
/// use std::path::Path;
/// use kubelet_testing::MemoryMounter;
/// use kubelet_volume::Mounter;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mounter = MemoryMounter::new(0);
/// let target = Path::new("/pods/uid/volumes/kubernetes.io~secret/safe");
/// mounter.mount("tmpfs", target, "tmpfs", &[]).await?;
/// assert!(mounter.is_mounted(target));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryMounter(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    /// Hung calls fail when it changes.
    ends: watch::Sender<u64>,
}

struct Table {
    mounts: Vec<MountPoint>,
    rng: fastrand::Rng,
    fault_rate: f64,
    check: Option<Arc<Check>>,
    violations: Vec<String>,
}

type Check = dyn Fn(&Path) -> Vec<String> + Send + Sync;

/// What goes wrong with a call.
#[derive(Clone, Copy)]
enum Fault {
    Fails,
    Slow,
    Hangs,
    AnswerLost,
    AnswerLate,
    AnswerHangs,
}

impl MemoryMounter {
    /// An empty table. Faults are drawn from the seed.
    pub fn new(seed: u64) -> Self {
        let table = Table {
            mounts: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
            fault_rate: 0.0,
            check: None,
            violations: Vec::new(),
        };
        Self(Arc::new(Inner {
            table: Mutex::new(table),
            ends: watch::Sender::new(0),
        }))
    }

    /// The fraction of calls that have a fault. 0 is none, 1 is all.
    pub fn set_fault_rate(&self, rate: f64) {
        self.0.table.lock().fault_rate = rate;
    }

    /// Ends all faults: calls that hang fail now.
    pub fn end_faults(&self) {
        self.set_fault_rate(0.0);
        self.0.ends.send_modify(|count| *count += 1);
    }

    /// Whether something is mounted on the path.
    pub fn is_mounted(&self, path: &Path) -> bool {
        self.0.table.lock().mounts.iter().any(|mount| mount.path == path)
    }

    /// All mounts, the newest last.
    pub fn all(&self) -> Vec<MountPoint> {
        self.0.table.lock().mounts.clone()
    }

    /// The host loses power: nothing is mounted any more.
    pub fn lose_all(&self) {
        let mounts = std::mem::take(&mut self.0.table.lock().mounts);
        mounts.iter().for_each(forget_files);
    }

    /// The problems that this check returns for the path of each unmount count as [violations](Self::violations).
    pub fn check_unmounts(&self, check: impl Fn(&Path) -> Vec<String> + Send + Sync + 'static) {
        self.0.table.lock().check = Some(Arc::new(check));
    }

    /// What was unmounted and should not have been.
    pub fn violations(&self) -> Vec<String> {
        self.0.table.lock().violations.clone()
    }

    /// Mounts without faults, for a driver that has faults of its own.
    #[cfg(feature = "plugins")]
    pub(crate) fn put(&self, source: &Path, target: &Path) {
        let mount = MountPoint {
            source: source.display().to_string(),
            path: target.to_owned(),
            fs_type: "ext4".to_owned(),
            options: Vec::new(),
        };
        self.0.table.lock().mounts.push(mount);
    }

    /// Unmounts without faults.
    #[cfg(feature = "plugins")]
    pub(crate) fn take(&self, target: &Path) {
        let check = self.0.table.lock().check.clone();
        self.0.table.lock().unmount(target, check.as_deref());
    }

    fn draw(&self) -> Option<Fault> {
        let table = &mut *self.0.table.lock();
        if table.fault_rate <= 0.0 || table.rng.f64() >= table.fault_rate {
            return None;
        }
        let kinds = [
            Fault::Fails,
            Fault::Slow,
            Fault::Hangs,
            Fault::AnswerLost,
            Fault::AnswerLate,
            Fault::AnswerHangs,
        ];
        let number = (table.rng.f64() * KINDS) as usize;
        kinds.get(number).copied()
    }

    async fn with_fault(
        &self,
        call: &str,
        target: &Path,
        work: impl FnOnce(&mut Table) + Send,
    ) -> Result<()> {
        let failed = |what: &str| format!("{call} {}: {what}", target.display());
        let fault = self.draw();
        match fault {
            Some(Fault::Fails) => return Err(Error::failed(failed("drawn"))),
            Some(Fault::Slow) => sleep(SLOW).await,
            Some(Fault::Hangs) => {
                self.hang().await;
                return Err(Error::failed(failed("hung")));
            }
            _ => {}
        }
        work(&mut self.0.table.lock());
        match fault {
            Some(Fault::AnswerLost) => Err(Error::uncertain(failed("the answer is lost"))),
            Some(Fault::AnswerLate) => {
                sleep(SLOW).await;
                Ok(())
            }
            Some(Fault::AnswerHangs) => {
                self.hang().await;
                Err(Error::uncertain(failed("hung")))
            }
            _ => Ok(()),
        }
    }

    async fn hang(&self) {
        // The sender lives as long as this mounter.
        let _ = self.0.ends.subscribe().changed().await;
    }
}

impl Table {
    fn unmount(&mut self, target: &Path, check: Option<&Check>) {
        let Some(last) = self.mounts.iter().rposition(|mount| mount.path == target) else {
            return;
        };
        self.violations
            .extend(check.map(|check| check(target)).unwrap_or_default());
        forget_files(&self.mounts.remove(last));
    }
}

/// Deletes what a tmpfs had in memory.
fn forget_files(mount: &MountPoint) {
    if mount.fs_type != "tmpfs" {
        return;
    }
    for entry in fs::read_dir(&mount.path).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_dir {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
    }
}

#[async_trait]
impl Mounter for MemoryMounter {
    async fn mount(&self, source: &str, target: &Path, fs_type: &str, options: &[String]) -> Result<()> {
        let mount = MountPoint {
            source: source.to_owned(),
            path: target.to_owned(),
            fs_type: fs_type.to_owned(),
            options: options.to_vec(),
        };
        self.with_fault("mount", target, |table| table.mounts.push(mount))
            .await
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        let check = self.0.table.lock().check.clone();
        self.with_fault("unmount", target, move |table| {
            table.unmount(target, check.as_deref());
        })
        .await
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        Ok(self.is_mounted(path))
    }

    async fn mounts(&self, below: &Path) -> Result<Vec<MountPoint>> {
        let mut mounts = self.all();
        mounts.retain(|mount| mount.path.starts_with(below));
        Ok(mounts)
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut mounts = self.all();
        mounts.retain(|mount| Path::new(&mount.source) == path);
        Ok(mounts.into_iter().map(|mount| mount.path).collect())
    }
}

impl fmt::Debug for MemoryMounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryMounter").field(&self.all()).finish()
    }
}
