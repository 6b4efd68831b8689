//! `ImageFsInfo`: the disk usage of containers and images.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubelet_core::Disk;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{CriAdapter, Result};
use crate::error::Error;
use crate::v1;

/// How long a measurement is reused. A kubelet calls several times in ten seconds; containerd measures this often.
const MEASUREMENT_PERIOD: Duration = Duration::from_secs(10);
/// `du` counts in these.
const BLOCK_BYTES: u64 = 512;

/// The measurements of the containers' folder. Dropping it ends one that is under way.
#[derive(Default)]
pub(super) struct Measured {
    state: Mutex<State>,
    dropped: Arc<AtomicBool>,
}

/// Locked during a measurement, so that one caller measures for all.
#[derive(Default)]
struct State {
    last: Option<(Instant, v1::FilesystemUsage)>,
    /// Outlives a caller that gives up: the next one waits for it and starts no second one.
    running: Option<Measurement>,
}

type Measurement = Pin<Box<dyn Future<Output = io::Result<Size>> + Send>>;

impl Drop for Measured {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

/// The disk usage of a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    bytes: u64,
    inodes: u64,
}

impl CriAdapter {
    /// The folder of the runtime, or that of the records. A runtime without both reports 0 bytes on the root file
    /// system, because a kubelet needs a file system that exists.
    pub(super) async fn containers_usage(&self, call: &'static str) -> Result<v1::FilesystemUsage> {
        // Creates the folder of the records.
        let records = self.records(call).await?;
        let Some(dir) = self.inner.runtime.data_dir().or(records.dir()) else {
            return Ok(self.usage(Path::new("/"), Size::default()));
        };
        let (id, after) = (dir.display().to_string(), self.inner.deadline);
        match timeout(after, self.measured_usage(dir)).await {
            Ok(usage) => usage.map_err(|error| Error::internal(call, &id, error.to_string())),
            Err(_) => Err(Error::Timeout { call, id, after }),
        }
    }

    async fn measured_usage(&self, dir: &Path) -> io::Result<v1::FilesystemUsage> {
        let measured = &self.inner.measured;
        let State { last, running } = &mut *measured.state.lock().await;
        if let Some((at, usage)) = last
            && at.elapsed() < MEASUREMENT_PERIOD
        {
            return Ok(usage.clone());
        }
        let size = running
            .get_or_insert_with(|| {
                let (dir, dropped) = (dir.to_owned(), measured.dropped.clone());
                Box::pin(async move { Disk::default().run(move || size_of(dir, &dropped)).await })
            })
            .await;
        *running = None;
        let usage = self.usage(dir, size?);
        *last = Some((Instant::now(), usage.clone()));
        Ok(usage)
    }

    /// The images, if they have their own folder: the sum of the sizes that the runtime reports.
    pub(super) async fn images_usage(&self, call: &'static str) -> Result<Option<v1::FilesystemUsage>> {
        let Some((images, dir)) = self
            .inner
            .runtime
            .images()
            .and_then(|images| Some((images, images.dir()?)))
        else {
            return Ok(None);
        };
        let list = self.within(call, "", Duration::ZERO, images.list()).await?;
        let bytes = list
            .iter()
            .fold(0_u64, |sum, image| sum.saturating_add(image.size));
        Ok(Some(v1::FilesystemUsage {
            inodes_used: None,
            ..self.usage(dir, Size { bytes, inodes: 0 })
        }))
    }

    fn usage(&self, dir: &Path, size: Size) -> v1::FilesystemUsage {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        v1::FilesystemUsage {
            timestamp: self.now(),
            fs_id: Some(v1::FilesystemIdentifier {
                mountpoint: dir.display().to_string(),
            }),
            used_bytes: Some(v1::UInt64Value { value: size.bytes }),
            inodes_used: Some(v1::UInt64Value { value: size.inodes }),
        }
    }
}

/// Counts as `du -sx` does: only on the folder's own file system, without files that cannot be read or that disappear
/// meanwhile. Files below a path that is too long for the system are not counted. Stops when `dropped` is set.
fn size_of(dir: PathBuf, dropped: &AtomicBool) -> io::Result<Size> {
    let root = std::fs::metadata(&dir)?;
    let mut size = Size::default();
    let mut linked = HashSet::new();
    let mut count = |metadata: &Metadata| {
        if metadata.nlink() == 1 || metadata.is_dir() || linked.insert(metadata.ino()) {
            size.bytes += metadata.blocks() * BLOCK_BYTES;
            size.inodes += 1;
        }
    };
    count(&root);
    let mut dirs = vec![dir];
    while let Some(dir) = dirs.pop() {
        if dropped.load(Ordering::Relaxed) {
            break;
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.dev() != root.dev() {
                continue;
            }
            count(&metadata);
            if metadata.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_links_count_once() {
        let dir = tempfile::tempdir().unwrap();
        let alone = size_of(dir.path().to_owned(), &AtomicBool::new(false)).unwrap();
        assert_eq!(alone.inodes, 1);
        let file = dir.path().join("deep/file");
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        std::fs::write(&file, [1; 8192]).unwrap();
        std::fs::hard_link(&file, dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("usr")).unwrap();
        let size = size_of(dir.path().to_owned(), &AtomicBool::new(false)).unwrap();
        assert_eq!(size.inodes, 4, "two folders, a file and a symbolic link");
        assert!(
            size.bytes >= alone.bytes + 8192 && size.bytes < alone.bytes + 65536,
            "{size:?}"
        );
        assert!(size_of(dir.path().join("none"), &AtomicBool::new(false)).is_err());
    }
}
