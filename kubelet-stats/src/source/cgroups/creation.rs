//! When a cgroup was created.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

/// The times of creation that were read, because the kernel forgets them when it frees an inode.
pub(super) struct CreationTimes {
    /// By name, with the inode of the folder: a folder of the same name may be another cgroup.
    known: Mutex<HashMap<String, (u64, Option<Timestamp>)>>,
    boot: Option<Timestamp>,
}

impl CreationTimes {
    pub(super) fn new(boot: Option<Timestamp>) -> Self {
        Self {
            known: Mutex::default(),
            boot,
        }
    }

    /// The earliest time of any of the folders, or of the file `marker` in them, which hardly anybody writes. Never before
    /// the boot (`common.GetSpec`).
    pub(super) fn get(
        &self,
        name: &str,
        inode: u64,
        folders: impl Iterator<Item = PathBuf>,
        marker: &str,
    ) -> Option<Timestamp> {
        if let Some((known, time)) = self.known.lock().get(name)
            && *known == inode
        {
            return *time;
        }
        let mut earliest: Option<Timestamp> = None;
        for folder in folders {
            for path in [folder.join(marker), folder] {
                let time = std::fs::metadata(path)
                    .ok()
                    .and_then(|metadata| modified(&metadata));
                earliest = match (earliest, time) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        let time = earliest.map(|time| self.boot.map_or(time, |boot| time.max(boot)));
        self.known.lock().insert(name.to_owned(), (inode, time));
        time
    }

    /// Forgets the cgroups below `root` that are not in `names`, which is sorted.
    pub(super) fn retain(&self, root: &str, names: &[String]) {
        self.known
            .lock()
            .retain(|name, _| !name.starts_with(root) || names.binary_search(name).is_ok());
    }
}

fn modified(metadata: &Metadata) -> Option<Timestamp> {
    Timestamp::new(metadata.mtime(), i32::try_from(metadata.mtime_nsec()).ok()?).ok()
}
