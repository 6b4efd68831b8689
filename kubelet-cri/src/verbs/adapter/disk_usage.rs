//! `ImageFsInfo`: the disk usage of containers and images.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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

/// The last measurement of the containers' folder. Locked during a measurement, so that one task measures for all.
#[derive(Default)]
pub(super) struct Measured(Mutex<Option<(Instant, v1::FilesystemUsage)>>);

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
        let mut last = self.inner.measured.0.lock().await;
        if let Some((at, usage)) = &*last
            && at.elapsed() < MEASUREMENT_PERIOD
        {
            return Ok(usage.clone());
        }
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let after = self.inner.deadline;
        let measured = dir.clone();
        let size = timeout(after, Disk::default().run(move || size_of(measured))).await;
        let id = dir.display().to_string();
        let size = match size {
            Ok(size) => size.map_err(|error| Error::internal(call, &id, error.to_string()))?,
            Err(_) => return Err(Error::Timeout { call, id, after }),
        };
        let usage = self.usage(&dir, size);
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
/// meanwhile.
fn size_of(dir: PathBuf) -> io::Result<Size> {
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
        let alone = size_of(dir.path().to_owned()).unwrap();
        assert_eq!(alone.inodes, 1);
        let file = dir.path().join("deep/file");
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        std::fs::write(&file, [1; 8192]).unwrap();
        std::fs::hard_link(&file, dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("/usr", dir.path().join("usr")).unwrap();
        let size = size_of(dir.path().to_owned()).unwrap();
        assert_eq!(size.inodes, 4, "two folders, a file and a symbolic link");
        assert!(
            size.bytes >= alone.bytes + 8192 && size.bytes < alone.bytes + 65536,
            "{size:?}"
        );
        assert!(size_of(dir.path().join("none")).is_err());
    }
}
